//! The file that is recorded to.

use std::{
    env,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{OpenOptionsExt as _, fchown},
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;

/// Makes the file, for its owner's eyes only: a recording tells command lines and paths. An older one is kept as
/// `FILE.old`. Devices and pipes are written to as they are.
///
/// # Errors
/// When the file cannot be made there.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        // A link is moved away too, never followed: root may be writing into a folder of somebody else's.
        Ok(found) if found.is_file() || found.is_symlink() => fs::rename(path, old(path))?,
        Ok(found) if found.is_dir() => return Err(io::Error::from(io::ErrorKind::IsADirectory)),
        Ok(_) => return OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    if let Some((user, group)) = behind_sudo() {
        // On a file system without owners the file is still good.
        if let Err(error) = fchown(&file, Some(user), Some(group)) {
            log::debug!("{}: owner: {error}", path.display());
        }
    }
    Ok(file)
}

/// Where an older recording is kept.
#[must_use]
pub fn old(path: &Path) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(".old");
    name.into()
}

/// Who called sudo: `tfmem report` is theirs to run.
fn behind_sudo() -> Option<(u32, u32)> {
    let number = |name| env::var(name).ok()?.parse().ok();
    geteuid().is_root().then(|| Some((number("SUDO_UID")?, number("SUDO_GID")?)))?
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    #[test]
    fn an_older_one_is_kept_and_nobody_else_may_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        for text in ["first", "second", "third"] {
            create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "third");
        assert_eq!(fs::read_to_string(old(&path)).unwrap(), "second");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (precious, path) = (folder.path().join("precious"), folder.path().join("trace"));
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, &path).unwrap();
        create(&path).unwrap().write_all(b"trace").unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&path).unwrap(), "trace");
    }

    #[test]
    fn devices_stay_what_they_are_and_folders_are_refused() {
        create(Path::new("/dev/null")).unwrap();
        assert!(!old(Path::new("/dev/null")).exists());
        let folder = tempfile::tempdir().unwrap();
        assert!(create(folder.path()).is_err());
        assert!(create(&folder.path().join("no/such/folder")).is_err());
    }
}
