//! Another process' memory.

use std::{
    io::{self, IoSliceMut},
    num::NonZeroI32,
};

use nix::{
    sys::uio::{RemoteIoVec, process_vm_readv},
    unistd::Pid,
};

/// Not all that was asked for is mapped and readable, or the process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its memory could not be read")]
pub struct Unread;

pub trait Memory {
    /// Fills the buffer from `address`, or fails.
    ///
    /// # Errors
    /// When not all of it is mapped and readable.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unread>;

    /// # Errors
    /// As [`Memory::read`].
    fn word(&self, address: u64) -> Result<u64, Unread> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// # Errors
    /// As [`Memory::read`].
    fn int(&self, address: u64) -> Result<i32, Unread> {
        let mut int = [0; 4];
        self.read(address, &mut int)?;
        Ok(i32::from_le_bytes(int))
    }

    /// # Errors
    /// As [`Memory::read`].
    fn byte(&self, address: u64) -> Result<u8, Unread> {
        let mut byte = [0];
        self.read(address, &mut byte)?;
        Ok(byte[0])
    }

    /// # Errors
    /// As [`Memory::read`].
    fn bytes(&self, address: u64, len: usize) -> Result<Vec<u8>, Unread> {
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }
}

/// The memory of a process by its pid. Nothing is held: a read after the process' end fails, and whoever reads for
/// longer makes sure that the pid is still the same process'.
#[derive(Clone, Copy, Debug)]
pub struct Remote(Pid);

impl Remote {
    /// # Errors
    /// When the process is gone or may not be read.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(NonZeroI32::new).ok_or(io::ErrorKind::NotFound)?;
        // The same check of privileges as that of a read, without reading anything.
        std::fs::File::open(format!("/proc/{pid}/mem"))?;
        Ok(Self(Pid::from_raw(pid.get())))
    }
}

impl Memory for Remote {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unread> {
        let (wanted, base) = (buffer.len(), usize::try_from(address).map_err(|_| Unread)?);
        let read = process_vm_readv(self.0, &mut [IoSliceMut::new(buffer)], &[RemoteIoVec { base, len: wanted }]);
        if read == Ok(wanted) { Ok(()) } else { Err(Unread) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_is_what_it_is() {
        let secret = *b"a secret of eighteen bytes";
        let memory = Remote::open(std::process::id()).unwrap();
        assert_eq!(memory.bytes(secret.as_ptr() as u64, secret.len()).unwrap(), secret);
        assert_eq!(memory.word(8), Err(Unread));
        assert!(Remote::open(0).is_err() && Remote::open(u32::MAX).is_err());
    }
}
