//! Who runs a process: container, pod, batch job, unit, by the path of its control group alone.
//!
//! The forms are those of the container runtimes' and the kubelet's own cgroup drivers (`cgroupfs` and `systemd`), of
//! both hierarchies: <https://kubernetes.io/docs/concepts/architecture/cgroups/>,
//! <https://github.com/opencontainers/runc/blob/main/docs/systemd.md>, <https://slurm.schedmd.com/cgroup_v2.html>.

use std::fs;

use serde::Serialize;

use crate::event::ProcessInfo;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Who {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// `docker`, `containerd`, `cri-o`, `podman`; `None`: the path does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_job: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_step: Option<String>,
    /// The service of systemd's, or the scope of a user's session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Task of a distributed TensorFlow job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<u64>,
    /// The name of the program, as the kernel has it.
    pub name: String,
}

impl Who {
    /// Reads what the kernel says of a process. Of its environment and its command line only the task is kept: they
    /// hold secrets.
    #[must_use]
    pub fn read(pid: u32, info: &ProcessInfo) -> Self {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"));
        let mut who = Self::of_groups(&groups.or_else(|_| info.cgroup.clone().ok_or(())).unwrap_or_default());
        who.name.clone_from(&info.comm);
        if let Some(job) = &info.job {
            who.job = Some(job.name.clone());
            who.task = Some(job.task);
        }
        who
    }

    /// From the lines of `/proc/PID/cgroup` (or one path).
    #[must_use]
    pub fn of_groups(text: &str) -> Self {
        let mut who = Self::default();
        for line in text.lines() {
            // `ID:CONTROLLERS:PATH`; the path may hold colons.
            let path = line.splitn(3, ':').nth(2).unwrap_or(line);
            who.add(path);
        }
        who
    }

    /// What one path says; the innermost container counts.
    fn add(&mut self, path: &str) {
        let (mut service, mut scope) = (None, None);
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if let Some(uid) = pod_uid(part) {
                self.pod_uid = Some(uid);
            }
            if let Some((id, runtime)) = container(part) {
                let runtime = runtime.or_else(|| of_parents(path));
                if self.container.as_deref() != Some(id) || runtime.is_some() {
                    self.runtime = runtime;
                }
                self.container = Some(id.to_owned());
            } else if part.ends_with(".service") {
                service = Some(part);
            } else if part.ends_with(".scope") && part != "init.scope" && part != "slurmstepd.scope" {
                scope = Some(part);
            }
            if let Some(number) = numbered(part, "job_") {
                self.slurm_job = Some(number.to_owned());
            } else if let Some(step) = part.strip_prefix("step_").filter(|_| self.slurm_job.is_some()) {
                self.slurm_step = Some(step.to_owned());
            }
        }
        if let Some(unit) = service.or(scope) {
            self.unit = Some(unit.to_owned());
        }
    }
}

/// `job_123`
fn numbered<'a>(part: &'a str, prefix: &str) -> Option<&'a str> {
    part.strip_prefix(prefix).filter(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Container identifiers are 64 hex digits everywhere; what stands before them names the runtime.
fn container(part: &str) -> Option<(&str, Option<&'static str>)> {
    const LENGTH: usize = 64;
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let start = part.len().checked_sub(LENGTH)?;
    let id = part.get(start..)?;
    if !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let prefix = part.get(..start)?;
    if prefix.is_empty() {
        return Some((id, None));
    }
    let runtime = prefix.strip_suffix(['-', ':'])?;
    // containerd without its own systemd driver: `kubepods-burstable-podUID.slice:cri-containerd:ID`.
    let name = runtime.rsplit(':').next().unwrap_or(runtime);
    match name {
        "docker" => Some((id, Some("docker"))),
        "cri-containerd" | "nerdctl" => Some((id, Some("containerd"))),
        "crio" => Some((id, Some("cri-o"))),
        "libpod" | "libpod-payload" => Some((id, Some("podman"))),
        // `crio-conmon-ID`, `libpod-conmon-ID`: the monitor, which is not in the container.
        _ => None,
    }
}

/// Bare identifiers lie below a folder that tells (`/docker/ID`, `/libpod_parent/libpod-ID`).
fn of_parents(path: &str) -> Option<&'static str> {
    let has = |name: &str| path.split('/').any(|part| part == name);
    if has("docker") {
        Some("docker")
    } else if has("libpod_parent") {
        Some("podman")
    } else {
        None
    }
}

/// `podUID` (cgroupfs) or `kubepods-burstable-podUID.slice` (systemd, where dashes became underscores). Static pods have
/// 32 hex digits without dashes.
fn pod_uid(part: &str) -> Option<String> {
    let part = part.split(':').next().unwrap_or(part);
    let part = part.strip_suffix(".slice").unwrap_or(part);
    let uid = match part.strip_prefix("pod") {
        Some(uid) => uid,
        None if part.starts_with("kubepods-") => part.rsplit_once("-pod")?.1,
        None => return None,
    };
    let hex = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    let dashes = uid.bytes().filter(|byte| matches!(byte, b'-' | b'_')).count();
    (hex == 32 && (dashes == 4 || dashes == 0) && uid.len() == hex + dashes).then(|| uid.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0f6e1b7d9c2a4f5e8b3d6a1c9e7f2b4d0f6e1b7d9c2a4f5e8b3d6a1c9e7f2b4d";
    const UID: &str = "4d5f1a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b";

    fn of(text: &str) -> Who {
        Who::of_groups(&text.replace("ID64", ID).replace("UID_", &UID.replace('-', "_")).replace("UID-", UID))
    }

    #[test]
    fn paths_of_every_runtime() {
        // Lines of `/proc/PID/cgroup`; container?, runtime, pod?
        let table: &[(&str, bool, Option<&str>, bool)] = &[
            // docker: systemd driver and cgroupfs, both hierarchies
            ("0::/system.slice/docker-ID64.scope", true, Some("docker"), false),
            ("12:memory:/docker/ID64", true, Some("docker"), false),
            ("4:cpu,cpuacct:/docker/ID64\n0::/", true, Some("docker"), false),
            ("0::/docker/ID64/init", true, Some("docker"), false),
            // Kubernetes, systemd driver
            (
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID_.slice/cri-containerd-ID64.scope",
                true,
                Some("containerd"),
                true,
            ),
            ("0::/kubepods.slice/kubepods-podUID_.slice/crio-ID64.scope", true, Some("cri-o"), true),
            ("0::/kubepods.slice/kubepods-podUID_.slice/crio-ID64.scope/container", true, Some("cri-o"), true),
            (
                "1:name=systemd:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID_.slice/docker-ID64.scope",
                true,
                Some("docker"),
                true,
            ),
            // cgroupfs driver
            ("11:memory:/kubepods/burstable/podUID-/ID64", true, None, true),
            ("0::/kubepods/podUID-/ID64", true, None, true),
            ("0::/kubepods/besteffort/podUID-/crio-ID64", true, Some("cri-o"), true),
            // containerd that is not told of systemd
            (
                "0::/system.slice/containerd.service/kubepods-burstable-podUID_.slice:cri-containerd:ID64",
                true,
                Some("containerd"),
                true,
            ),
            // kind and k3s: a kubelet in a container
            (
                "0::/docker/ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podX.slice/cri-containerd-ID64.scope",
                true,
                Some("containerd"),
                false,
            ),
            // as one in a cgroup namespace of its own sees others
            ("0::/../../kubepods-podUID_.slice/cri-containerd-ID64.scope", true, Some("containerd"), false),
            // podman
            ("0::/machine.slice/libpod-ID64.scope/container", true, Some("podman"), false),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID64.scope",
                true,
                Some("podman"),
                false,
            ),
            ("3:pids:/libpod_parent/libpod-ID64", true, Some("podman"), false),
            // the monitor is none
            ("0::/machine.slice/libpod-conmon-ID64.scope", false, None, false),
            ("0::/kubepods.slice/kubepods-podUID_.slice/crio-conmon-ID64.scope", false, None, true),
            // none at all
            ("0::/", false, None, false),
            ("0::/user.slice/user-1000.slice/session-3.scope", false, None, false),
            ("", false, None, false),
        ];
        for (text, in_container, runtime, in_pod) in table {
            let who = of(text);
            assert_eq!(who.container.as_deref(), in_container.then_some(ID), "{text}");
            assert_eq!(who.runtime, *runtime, "{text}");
            // A slice that is named by its pod alone, seen from elsewhere, says so all the same.
            let pod = *in_pod || text.contains("kubepods-podUID_");
            assert_eq!(who.pod_uid.as_deref(), pod.then_some(UID), "{text}");
        }
    }

    #[test]
    fn a_static_pod_has_a_hash() {
        let who = of("0::/kubepods/burstable/pod0f6e1b7d9c2a4f5e8b3d6a1c9e7f2b4d/ID64");
        assert_eq!(who.pod_uid.as_deref(), Some("0f6e1b7d9c2a4f5e8b3d6a1c9e7f2b4d"));
    }

    #[test]
    fn batch_jobs_of_slurm() {
        let table = [
            ("9:memory:/slurm/uid_1000/job_4711/step_0/task_1", "0"),
            ("0::/system.slice/slurmstepd.scope/job_4711/step_batch/user/task_0", "batch"),
            ("0::/system.slice/node1_slurmstepd.scope/job_4711/step_3/user/task_0", "3"),
        ];
        for (text, step) in table {
            let who = of(text);
            assert_eq!(who.slurm_job.as_deref(), Some("4711"), "{text}");
            assert_eq!(who.slurm_step.as_deref(), Some(step), "{text}");
        }
        assert_eq!(of("0::/job_x/job_/step_1").slurm_job, None);
    }

    #[test]
    fn units_of_systemd() {
        assert_eq!(of("0::/system.slice/serving.service").unit.as_deref(), Some("serving.service"));
        assert_eq!(of("0::/system.slice/tf\\x2dserving@2.service/x").unit.as_deref(), Some("tf\\x2dserving@2.service"));
        assert_eq!(of("0::/user.slice/user-0.slice/session-3.scope").unit.as_deref(), Some("session-3.scope"));
        assert_eq!(of("0::/system.slice/docker-ID64.scope").unit, None);
        assert_eq!(of("0::/init.scope").unit, None);
    }

    #[test]
    fn garbage_is_nobody() {
        for text in ["::::", "0::", "0::////", "x", "0::/podUID", "0::/pod-----/\u{e4}\u{e4}", "0::/docker-.scope"] {
            let who = of(text);
            assert!(who.container.is_none() && who.pod_uid.is_none() && who.slurm_job.is_none(), "{text}");
        }
    }
}
