//! Another process' memory.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use super::Unreadable;

pub trait Memory {
    /// Fills the buffer from `address`, or fails.
    ///
    /// # Errors
    /// When not all of it is mapped and readable.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable>;

    /// # Errors
    /// As [`Memory::read`].
    fn word(&self, address: u64) -> Result<u64, Unreadable> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// # Errors
    /// As [`Memory::read`].
    fn int(&self, address: u64) -> Result<i32, Unreadable> {
        let mut int = [0; 4];
        self.read(address, &mut int)?;
        Ok(i32::from_le_bytes(int))
    }

    /// # Errors
    /// As [`Memory::read`].
    fn byte(&self, address: u64) -> Result<u8, Unreadable> {
        let mut byte = [0];
        self.read(address, &mut byte)?;
        Ok(byte[0])
    }

    /// # Errors
    /// As [`Memory::read`].
    fn bytes(&self, address: u64, len: usize) -> Result<Vec<u8>, Unreadable> {
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }
}

/// The memory of a process by its pid.
#[derive(Debug)]
pub struct Remote(File);

impl Remote {
    /// # Errors
    /// When the process is gone or may not be read.
    pub fn open(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/mem")).map(Self)
    }
}

impl Memory for Remote {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        self.0.read_exact_at(buffer, address).map_err(|_| Unreadable::Memory)
    }
}
