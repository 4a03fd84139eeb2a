//! `tfmem mark --pid PID LABEL`

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use super::{args::Mark, exit::Failure};
use crate::live::marks::{DONE, FOLDER, check_label};

/// A tracer answers at once unless it is putting probes in.
const PATIENCE: Duration = Duration::from_secs(5);

/// # Errors
/// When no running trace has the process, or the label is none.
pub fn mark(args: &Mark) -> Result<u8, Failure> {
    check_label(&args.label).map_err(Failure::usage)?;
    let folder = Path::new(FOLDER);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(nobody(args.pid)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Failure::usage(format!(
                "missing privilege: {FOLDER} is root's. Run it as root: sudo tfmem mark …"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "sock"))
    {
        match ask(&path, args) {
            Ok(true) => return Ok(0),
            Ok(false) => {}
            // A tracer that was killed leaves its file behind.
            Err(error) => log::debug!("{}: {error}", path.display()),
        }
    }
    Err(nobody(args.pid))
}

fn ask(path: &Path, args: &Mark) -> io::Result<bool> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{} {}\n", args.pid, args.label).as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.take(64).read_to_string(&mut answer)?;
    Ok(answer == DONE)
}

fn nobody(pid: u32) -> Failure {
    Failure::usage(format!("no running trace has process {pid}: start one with `tfmem trace --pid {pid}`"))
}
