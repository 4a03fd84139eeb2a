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

/// The function that this one is a part of, made for a device.
#[must_use]
pub fn whole(name: &str) -> &str {
    name.split("_partitioned_").next().unwrap_or(name)
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
            ("_9", "_9"),
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
