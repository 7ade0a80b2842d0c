use plmkit_contract::{Exit, Failure};

use super::*;

fn open(stream: impl Read + Send + 'static) -> Result<Source, ShardError> {
    Source::new(&Input::File("a.fasta".into()), stream, 16, &Stop::default())
}

/// Yields bytes, then an error of the system.
struct Failing(&'static [u8], i32);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::from_raw_os_error(self.1)),
            count => Ok(count),
        }
    }
}

#[test]
fn digest_and_size_are_those_of_the_plain_bytes() {
    let text = b">a\nMKVLAAGIVGLCAKAYLE\n>b\nMK\n";
    let expected = (content_digest(blake3::hash(text)), text.len() as u64);
    let packed = zstd::encode_all(&text[..], 0).expect("memory");
    for stream in [text.to_vec(), packed] {
        let mut source = open(io::Cursor::new(stream)).expect("open");
        source.consume(0);
        source.read_exact(&mut [0; 2]).expect("read");
        assert_eq!(source.finish().expect("finish"), expected);
    }
}

#[test]
fn a_failing_disk_is_distinguished_from_a_damaged_stream() {
    const EIO: i32 = 5;
    let fails = |stream| match open(stream).map(Source::finish) {
        Ok(Err(error)) => inner_error(error),
        Err(error) => error,
        Ok(Ok(_)) => panic!("it failed"),
    };
    let error = fails(Failing(b">a\nMKVLAAGIVGLCAKAYLE\n", EIO));
    assert_eq!(error.exit(), Exit::Io);
    assert_eq!(
        error.to_string(),
        "a.fasta: cannot read: input/output error"
    );
    assert_eq!(fails(Failing(b"", EIO)).exit(), Exit::Io);
    assert_eq!(fails(Failing(b"\x1f\x8b\x08\0", EIO)).exit(), Exit::Io);
}

#[test]
fn an_interrupted_read_is_repeated() {
    struct Interrupted(bool, io::Cursor<Vec<u8>>);
    impl Read for Interrupted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 = !self.0;
            if self.0 {
                Err(io::ErrorKind::Interrupted.into())
            } else {
                self.1.read(&mut buffer[..1])
            }
        }
    }
    let packed = zstd::encode_all(&b">a\nMK\n"[..], 0).expect("memory");
    let source = open(Interrupted(false, io::Cursor::new(packed))).expect("open");
    assert_eq!(source.finish().expect("finish").1, 6);
}
