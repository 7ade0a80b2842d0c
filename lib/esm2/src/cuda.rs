//! `libplmkit_cuda.so`, which computes on a GPU: the library that links libtorch, opened when it is needed.
//!
//! The program and the library exchange JSON for everything but token ids and values, which stay where they are. The
//! [interface](self) is for both sides; the program's side is private.

mod find;
pub(crate) mod interface;
mod model;

pub use interface::{
    Answer, Batch, Bytes, Functions, MemoryAsked, Note, Opening, OpeningGpu, Place, VERSION,
    Version,
};
pub use model::Ticket;
pub(crate) use model::{CudaModel, check};
