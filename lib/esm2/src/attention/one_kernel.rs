//! All sequences by one kernel that knows where each begins: the GPU's way without padding.

use tch::{Kind, Tensor};

use super::Attention;
use crate::EsmError;
use crate::packed::Packed;
use crate::shim::VarlenKernel;

/// The compute capability from which on there is flash attention.
const FLASH: (i32, i32) = (8, 0);

/// Flash attention where the device and the type have it, and memory-efficient attention elsewhere.
#[derive(Debug)]
pub(crate) struct OneKernel {
    /// Of the device, major and minor.
    pub(crate) capability: (i32, i32),
}

impl OneKernel {
    fn kernel(&self, kind: Kind) -> VarlenKernel {
        match kind {
            Kind::Half | Kind::BFloat16 if self.capability >= FLASH => VarlenKernel::Flash,
            _ => VarlenKernel::MemoryEfficient,
        }
    }
}

impl Attention for OneKernel {
    fn forward(&self, qkv: &Tensor, batch: &Packed) -> Result<Tensor, EsmError> {
        let (rows, _, heads, head_dim) = qkv.size4()?;
        let own = batch.own(qkv)?;
        let part = |i| own.f_select(1, i); // (total_tokens, heads, head_dim)
        let kernel = self.kernel(qkv.f_kind()?);
        let mixed = kernel.forward(
            [&part(0)?, &part(1)?, &part(2)?],
            &batch.offsets,
            batch.longest,
        )?;
        let missing = rows - mixed.size3()?.0;
        let mixed = match missing {
            0 => mixed,
            // Rows that belong to no sequence are zero.
            _ => mixed.f_constant_pad_nd([0, 0, 0, 0, 0, missing])?,
        };
        Ok(mixed.f_reshape([rows, heads * head_dim])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flash_attention_where_there_is_some() {
        let hopper = OneKernel { capability: (9, 0) };
        let turing = OneKernel { capability: (7, 5) };
        assert_eq!(hopper.kernel(Kind::Half), VarlenKernel::Flash);
        assert_eq!(hopper.kernel(Kind::BFloat16), VarlenKernel::Flash);
        assert_eq!(hopper.kernel(Kind::Float), VarlenKernel::MemoryEfficient);
        assert_eq!(turing.kernel(Kind::Half), VarlenKernel::MemoryEfficient);
    }
}
