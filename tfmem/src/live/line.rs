//! One line from a Unix socket.

use std::io;

use tokio::net::UnixStream;

/// What comes before the end of a line, or of the stream, or when there are `enough` bytes. What was read with the end of
/// the line is there, too.
///
/// # Errors
/// When the stream breaks.
pub async fn read_line(stream: &UnixStream, enough: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut buffer = [0; 1024];
    while line.len() < enough && !line.contains(&b'\n') {
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => line.extend(buffer.iter().take(n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(line)
}
