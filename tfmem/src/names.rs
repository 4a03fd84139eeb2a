//! Names that TensorFlow makes up.

/// `__inference_score_123` → `score`
#[must_use]
pub fn function(full: &str) -> &str {
    let name = ["__inference_", "__forward_", "__backward_"].iter().find_map(|prefix| full.strip_prefix(prefix));
    let name = name.unwrap_or(full);
    let name = whole(name);
    match name.rsplit_once('_') {
        Some((stem, number)) if !stem.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => stem,
        _ => name,
    }
}

/// Digits of a fingerprint in a name; numbers of traces are shorter.
const FINGERPRINT: usize = 15;

/// The function that this one is a part of, made for a device, or a copy of, made for one way of running it: these have a
/// fingerprint behind the name.
#[must_use]
pub fn whole(name: &str) -> &str {
    let name = name.split("_partitioned_").next().unwrap_or(name);
    let digits = |at: usize| name.bytes().skip(at + 1).take_while(u8::is_ascii_digit).count();
    let copy = name.match_indices('_').map(|(at, _)| at).find(|&at| digits(at) >= FINGERPRINT);
    copy.and_then(|at| name.get(..at)).filter(|stem| !stem.is_empty()).unwrap_or(name)
}

/// `tensorflow::data::ShuffleDatasetOpBase::ShuffleDatasetBase::Iterator` → `Shuffle`
#[must_use]
pub fn dataset(class: &str) -> Option<&str> {
    let before = class.split("DatasetOp").next().filter(|before| before.len() < class.len())?;
    let name = before.rsplit([':', '<']).next()?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_datasets() {
        for (full, plain) in [
            ("__inference_score_123", "score"),
            ("__forward_train_step_7", "train_step"),
            ("__inference_Dataset_map_<lambda>_12", "Dataset_map_<lambda>"),
            ("__inference_score", "score"),
            ("while_body_3", "while_body"),
            ("__inference_body_356_partitioned_13303079382230094072", "body"),
            ("__inference_body_706_2424787042395411183", "body"),
            ("__inference_body_706_2424787042395411183_12", "body"),
            ("_9", "_9"),
            ("_2424787042395411183", "_2424787042395411183"),
        ] {
            assert_eq!(function(full), plain, "{full}");
        }
        for (class, name) in [
            ("tensorflow::data::ShuffleDatasetOpBase::ShuffleDatasetBase::Iterator<X>", Some("Shuffle")),
            ("std::_Sp_counted<tensorflow::data::ParallelMapDatasetOp::Dataset::Iterator::R, Y>", Some("ParallelMap")),
            ("tensorflow::data::(anonymous namespace)::MemoryCache", None),
            ("DatasetOp", None),
        ] {
            assert_eq!(dataset(class), name, "{class}");
        }
    }
}
