//! Where the record batches of an Arrow IPC file lie.

use std::ops::Range;

use arrow::ipc::reader::read_footer_length;
use arrow::ipc::{Block, Footer, root_as_footer, root_as_message};

/// The last bytes of a file: the footer's length and the magic string.
const TRAILER: usize = 10;

/// The first bytes of a message: a marker and the length of its metadata.
const MESSAGE_HEAD: usize = 8;

/// The footer of `file`, and the length of what comes before it.
pub(crate) fn footer(file: &[u8]) -> Result<(Footer<'_>, usize), String> {
    let trailer = file
        .last_chunk::<TRAILER>()
        .ok_or_else(|| format!("it has {} bytes", file.len()))?;
    let length = read_footer_length(*trailer).map_err(|error| error.to_string())?;
    let end = file.len() - TRAILER;
    let start = end
        .checked_sub(length)
        .ok_or_else(|| format!("it claims a footer of {length} bytes"))?;
    let footer = root_as_footer(&file[start..end])
        .map_err(|error| format!("its footer is damaged: {}", one_line(&error)))?;
    Ok((footer, start))
}

/// The blocks with their places in the `len` bytes before the footer. Each begins where the one before it ends.
pub(crate) fn ranges(blocks: &[Block], len: usize) -> Result<Vec<(Block, Range<usize>)>, String> {
    let mut places: Vec<(Block, Range<usize>)> = Vec::with_capacity(blocks.len());
    for block in blocks {
        let index = places.len();
        let place = range(block)
            .filter(|range| range.end <= len && block.metaDataLength() as usize >= MESSAGE_HEAD)
            .ok_or_else(|| format!("record batch {index} lies outside the file"))?;
        if let Some((_, before)) = places
            .last()
            .filter(|(_, before)| before.end != place.start)
        {
            return Err(format!(
                "record batch {index} begins at byte {}; expected {}, where the one before it ends",
                place.start, before.end
            ));
        }
        places.push((*block, place));
    }
    Ok(places)
}

fn range(block: &Block) -> Option<Range<usize>> {
    let start = usize::try_from(block.offset()).ok()?;
    let metadata = usize::try_from(block.metaDataLength()).ok()?;
    let body = usize::try_from(block.bodyLength()).ok()?;
    Some(start..start.checked_add(metadata)?.checked_add(body)?)
}

/// Checks the metadata of a record batch: a body that is used as it lies is not compressed, and a buffer begins where
/// the one before it ends, but for padding.
pub(crate) fn check_message(metadata: &[u8]) -> Result<(), String> {
    let message = metadata.get(MESSAGE_HEAD..).unwrap_or_default();
    let message = root_as_message(message)
        .map_err(|error| format!("its metadata is damaged: {}", one_line(&error)))?;
    let batch = message
        .header_as_record_batch()
        .ok_or("expected a record batch, found another message")?;
    if batch.compression().is_some() {
        return Err("it is compressed; expected a body that is used as it lies".to_owned());
    }
    let mut end = 0;
    for buffer in batch.buffers().iter().flatten() {
        if buffer.length() < 0 || !(end..end + PADDING).contains(&buffer.offset()) {
            return Err(format!(
                "a buffer has {} bytes at {}; expected it to begin at {end}",
                buffer.length(),
                buffer.offset()
            ));
        }
        end = buffer.offset().saturating_add(buffer.length());
    }
    Ok(())
}

/// Buffers begin at multiples of this.
const PADDING: i64 = 64;

fn one_line(error: &impl ToString) -> String {
    error.to_string().replace('\n', " ")
}

#[cfg(test)]
mod tests;
