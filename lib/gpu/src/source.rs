//! The source of the kernels.

use std::ffi::CStr;

macro_rules! files {
    ($($name:literal)*) => {
        concat!($("#line 1 \"", $name, "\"\n", include_str!(concat!("kernels/", $name)),)* "\0")
    };
}

const TEXT: &str = files!(
    "prelude.cu" "rope.cu" "add_layer_norm.cu" "norm_rope.cu" "bias_gelu.cu" "silu_gate.cu" "embed.cu" "pool.cu"
);

/// The source of all kernels, one program for each element type.
pub(crate) const SOURCE: &CStr = match CStr::from_bytes_with_nul(TEXT.as_bytes()) {
    Ok(source) => source,
    Err(_) => panic!("a zero byte in a source of the kernels"),
};

macro_rules! kernels {
    ($($variant:ident $name:literal)*) => {
        /// A kernel of the program.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kernel {
            $($variant,)*
        }

        impl Kernel {
            /// All kernels in the order of their numbers.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the kernel's name in the source.
            pub(crate) const fn name(self) -> &'static CStr {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

// Kernels of packets read 8 or 16 bytes at once. Kernels of values accept any width and address.
kernels! {
    RopePackets c"rope_packets"
    RopeValues c"rope_values"
    AddLayerNormPackets c"add_layer_norm_packets"
    AddLayerNormValues c"add_layer_norm_values"
    NormRopePackets c"norm_rope_packets"
    NormRopeValues c"norm_rope_values"
    BiasGeluPackets c"bias_gelu_packets"
    BiasGeluValues c"bias_gelu_values"
    SiluGatePackets c"silu_gate_packets"
    SiluGateValues c"silu_gate_values"
    EmbedPackets c"embed_packets"
    EmbedValues c"embed_values"
    PoolChunksMeanPackets c"pool_chunks_mean_packets"
    PoolChunksMeanValues c"pool_chunks_mean_values"
    PoolChunksMaxPackets c"pool_chunks_max_packets"
    PoolChunksMaxValues c"pool_chunks_max_values"
    PoolChunksStdPackets c"pool_chunks_std_packets"
    PoolChunksStdValues c"pool_chunks_std_values"
    PoolSequencesMeanPackets c"pool_sequences_mean_packets"
    PoolSequencesMeanValues c"pool_sequences_mean_values"
    PoolSequencesMaxPackets c"pool_sequences_max_packets"
    PoolSequencesMaxValues c"pool_sequences_max_values"
    PoolSequencesStdPackets c"pool_sequences_std_packets"
    PoolSequencesStdValues c"pool_sequences_std_values"
    PoolBos c"pool_bos"
}
