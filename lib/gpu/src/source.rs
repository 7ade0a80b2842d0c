//! The source of the kernels.

use std::ffi::{CStr, CString};

use strum::{IntoStaticStr, VariantArray};

use crate::Dtype;

macro_rules! files {
    ($($name:literal)*) => {
        concat!($("#line 1 \"", $name, "\"\n", include_str!(concat!("kernels/", $name)),)* "\0")
    };
}

const TEXT: &str = files!(
    "prelude.cu" "rope.cu" "row.cu" "add_layer_norm.cu" "norm_rope.cu" "bias_gelu.cu" "silu_gate.cu" "quantised_activation.cu"
    "embed.cu" "pool.cu"
);

/// The source of all kernels, one program for each type of a model.
pub(crate) const SOURCE: &CStr = match CStr::from_bytes_with_nul(TEXT.as_bytes()) {
    Ok(source) => source,
    Err(_) => panic!("a zero byte in a source of the kernels"),
};

/// A kernel of the program. Kernels of packets read 8 or 16 bytes at once. Kernels of values accept any width and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Kernel {
    RopePackets,
    RopeValues,
    AddLayerNormPackets,
    AddLayerNormValues,
    NormRopePackets,
    NormRopeValues,
    BiasGeluPackets,
    BiasGeluValues,
    SiluGatePackets,
    SiluGateValues,
    EmbedPackets,
    EmbedValues,
    PoolChunksMeanPackets,
    PoolChunksMeanValues,
    PoolChunksMaxPackets,
    PoolChunksMaxValues,
    PoolChunksStdPackets,
    PoolChunksStdValues,
    PoolSequencesMeanPackets,
    PoolSequencesMeanValues,
    PoolSequencesMaxPackets,
    PoolSequencesMaxValues,
    PoolSequencesStdPackets,
    PoolSequencesStdValues,
    PoolBos,
    // From here on, only in the program for fp8.
    AddLayerNormE4m3Packets,
    AddLayerNormE4m3Values,
    GeluE4m3Packets,
    GeluE4m3Values,
    SiluGateE4m3Packets,
    SiluGateE4m3Values,
}

impl Kernel {
    /// Returns the kernels of the program for a type.
    pub(crate) fn of(dtype: Dtype) -> &'static [Self] {
        match dtype {
            Dtype::Fp8 => Self::VARIANTS,
            _ => &Self::VARIANTS[..Self::AddLayerNormE4m3Packets as usize],
        }
    }

    /// Returns the kernel's name in the source.
    pub(crate) fn name(self) -> CString {
        CString::new(<&str>::from(self)).unwrap_or_default()
    }
}
