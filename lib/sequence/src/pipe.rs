//! Reading from where a read may wait for ever, such as standard input.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use plmkit_contract::Stop;

/// Bytes read at once.
const CHUNK: usize = 1 << 16;

/// How long a stop may go unnoticed.
const PATIENCE: Duration = Duration::from_millis(50);

/// The bytes of a stream, until a stop is asked for: then it is at its end, also where its writer is silent.
pub(crate) struct Pipe {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Cursor<Vec<u8>>,
    stop: Stop,
}

impl Pipe {
    /// Starts to read. The thread that reads ends with the stream, or with the process where that never ends.
    pub(crate) fn new(stream: impl Read + Send + 'static, stop: &Stop) -> io::Result<Self> {
        let (sender, chunks) = sync_channel(4);
        thread::Builder::new().spawn(move || send_all(stream, &sender))?;
        Ok(Self {
            chunks,
            chunk: Cursor::default(),
            stop: stop.clone(),
        })
    }
}

fn send_all(mut stream: impl Read, sender: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; CHUNK];
        let read = match stream.read(&mut chunk) {
            Ok(0) => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read,
        };
        let failed = read.is_err();
        let message = read.map(|count| {
            chunk.truncate(count);
            chunk
        });
        if sender.send(message).is_err() || failed {
            return;
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.chunk.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            match self.chunks.recv_timeout(PATIENCE) {
                Ok(chunk) => self.chunk = Cursor::new(chunk?),
                Err(RecvTimeoutError::Timeout) if !self.stop.requested() => {}
                Err(_) => return Ok(0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields a byte at a time, then waits for ever or fails.
    struct Slow {
        bytes: &'static [u8],
        fails: bool,
    }

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.bytes.read(&mut buffer[..1])? {
                0 if self.fails => Err(io::Error::from_raw_os_error(5)),
                0 => loop {
                    thread::park();
                },
                count => Ok(count),
            }
        }
    }

    #[test]
    fn all_bytes_arrive() {
        let bytes: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut read = Vec::new();
        let mut pipe = Pipe::new(Cursor::new(bytes.clone()), &Stop::default()).expect("thread");
        pipe.read_to_end(&mut read).expect("memory");
        assert!(read == bytes);
    }

    #[test]
    fn a_stop_ends_the_wait_for_a_silent_writer() {
        let stop = Stop::default();
        let mut pipe = Pipe::new(
            Slow {
                bytes: b"MKV",
                fails: false,
            },
            &stop,
        )
        .expect("thread");
        let mut bytes = [0; 3];
        pipe.read_exact(&mut bytes).expect("three bytes");
        stop.request();
        assert_eq!(pipe.read(&mut bytes).expect("the end"), 0);
    }

    #[test]
    fn a_failure_comes_after_the_bytes_before_it() {
        let mut pipe = Pipe::new(
            Slow {
                bytes: b"MKV",
                fails: true,
            },
            &Stop::default(),
        )
        .expect("thread");
        let mut bytes = Vec::new();
        let error = pipe.read_to_end(&mut bytes).expect_err("it failed");
        assert_eq!(
            (bytes.as_slice(), error.raw_os_error()),
            (&b"MKV"[..], Some(5))
        );
    }
}
