//! The token ids that the model itself gives a meaning to.

/// `<cls>`, which begins every sequence.
pub(crate) const CLS: u8 = 0;
/// `<eos>`, which ends every sequence.
pub(crate) const EOS: u8 = 2;
/// `<unk>`, the first id that may stand between them: `<cls>`, `<pad>` and `<eos>` may not.
pub(crate) const UNK: u8 = 3;
/// `<mask>`, the last id.
pub(crate) const MASK: u8 = 32;
