//! The PyTorch weight file of a checkpoint, from its archive to the tensors of a model.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plmkit_fuzz::load_with;

fuzz_target!(|bytes: &[u8]| load_with("pytorch_model.bin", bytes));
