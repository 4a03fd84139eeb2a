//! A process's place in a distributed job.
//!
//! From the environment it was started with (`TF_CONFIG`, <https://www.tensorflow.org/guide/distributed_training>) or
//! from the flags that TensorFlow's examples use. Of the environment only these two values are kept: it holds secrets.

use std::{fs::File, io::Read as _};

use serde::Deserialize;

use crate::event::Job;

/// A longer environment is cut: what is behind is not looked at.
const LONGEST_ENVIRONMENT: u64 = 1 << 20;
/// Characters of a job's name.
const LONGEST_NAME: usize = 64;

#[derive(Deserialize)]
struct Config {
    task: Option<Task>,
}

#[derive(Deserialize)]
struct Task {
    #[serde(rename = "type")]
    name: Option<String>,
    index: Option<Index>,
}

/// Programs write the index as a number or as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Index {
    Number(u64),
    Text(String),
}

/// `None`: it has none, or does not say so.
pub fn read(pid: u32, cmdline: &[String]) -> Option<Job> {
    from_environment(&environment(pid)).or_else(|| from_flags(cmdline))
}

fn environment(pid: u32) -> Vec<u8> {
    let mut raw = Vec::new();
    // A process that is gone, or another user's: no environment.
    if let Ok(file) = File::open(format!("/proc/{pid}/environ")) {
        let _ = file.take(LONGEST_ENVIRONMENT).read_to_end(&mut raw);
    }
    raw
}

fn from_environment(raw: &[u8]) -> Option<Job> {
    let text = raw.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(b"TF_CONFIG="))?;
    let task = serde_json::from_slice::<Config>(text).ok()?.task?;
    let index = match task.index? {
        Index::Number(n) => n,
        Index::Text(text) => text.parse().ok()?,
    };
    job(&task.name?, index)
}

/// `--job_name=worker --task_index=1`, also with one dash or with the value as the next word.
fn from_flags(cmdline: &[String]) -> Option<Job> {
    let value = |flag: &str| {
        let mut words = cmdline.iter();
        while let Some(word) = words.next() {
            let Some(bare) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
            match bare.split_once('=') {
                Some((name, value)) if name == flag => return Some(value.to_owned()),
                None if bare == flag => return words.next().cloned(),
                _ => {}
            }
        }
        None
    };
    job(&value("job_name")?, value("task_index")?.parse().ok()?)
}

fn job(name: &str, task: u64) -> Option<Job> {
    let name: String = name.chars().filter(|c| !c.is_control()).take(LONGEST_NAME).collect();
    (!name.is_empty()).then_some(Job { name, task })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, task: u64) -> Option<Job> {
        Some(Job { name: name.to_owned(), task })
    }

    #[test]
    fn the_environment_names_the_task() {
        let config =
            |task: &str| format!("A=1\0TF_CONFIG={{\"cluster\": {{\"worker\": [\"h:1\"]}}{task}}}\0B=2\0").into_bytes();
        assert_eq!(from_environment(&config(r#", "task": {"type": "worker", "index": 1}"#)), of("worker", 1));
        assert_eq!(from_environment(&config(r#", "task": {"type": "chief", "index": "0"}"#)), of("chief", 0));
        for none in [r#", "task": {"type": "worker"}"#, r#", "task": {"type": "worker", "index": -1}"#, ""] {
            assert_eq!(from_environment(&config(none)), None, "{none}");
        }
        assert_eq!(from_environment(b"MY_TF_CONFIG={}\0TF_CONFIG=not json\0"), None);
        assert_eq!(from_environment(b""), None);
    }

    #[test]
    fn flags_name_the_task() {
        let flags = |text: &str| from_flags(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(flags("python t.py --job_name=ps --task_index=2"), of("ps", 2));
        assert_eq!(flags("python t.py -job_name ps --x --task_index 0"), of("ps", 0));
        for none in
            ["python t.py", "t --job_name=ps", "t --task_index=1", "t --job_name=ps --task_index=x", "t --job_name"]
        {
            assert_eq!(flags(none), None, "{none}");
        }
    }

    #[test]
    fn names_are_short_and_without_control_characters() {
        assert_eq!(job("a\x1b[1m", 0), of("a[1m", 0));
        assert_eq!(job(&"x".repeat(1000), 0).map(|j| j.name.len()), Some(LONGEST_NAME));
        assert_eq!(job("\n", 0), None);
    }
}
