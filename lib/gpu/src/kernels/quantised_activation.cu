// The activation of a feed-forward network, written as e4m3 with a factor for each row, whose values it takes in registers.
//
// wide: (tokens, width) ELEMENT, bias: (width) ELEMENT, for GELU; or (tokens, 2 width) with gates before values, and no bias.
// out: (tokens, width) e4m3; scales: (tokens) f32.

template <bool GATED, bool WHOLE>
static __device__ __forceinline__ void activate_row(const ELEMENT *wide, const ELEMENT *bias, e4m3 *out, float *scales,
                                                    unsigned tokens, unsigned width, unsigned warps) {
    const unsigned threads = 32 * warps; // of a row
    const unsigned row = threadIdx.x / threads;
    const unsigned token = blockIdx.x * (blockDim.x / threads) + row;
    const unsigned here = token < tokens ? width : 0;
    const unsigned long long offset = static_cast<unsigned long long>(token) * width;
    const ELEMENT *at = wide + (GATED ? 2 : 1) * offset;

    float held[PACKETS][4];
#pragma unroll
    for (unsigned k = 0; k < PACKETS; ++k) {
        const unsigned channel = channel_of(k, threads);
        const unsigned present = present_of(4, channel, here);
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            held[k][i] = 0.0f;
        }
        if (present > 0) {
            float other[4];
            load<4, WHOLE>(held[k], at + channel, present);
            load<4, WHOLE>(other, (GATED ? at + width : bias) + channel, present);
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                held[k][i] = GATED ? silu(held[k][i]) * other[i] : gelu(held[k][i] + other[i]);
            }
        }
    }
    quantise<WHOLE>(held, here, row, warps, token, out, scales);
}

#define QUANTISED_ACTIVATION(name, gated, whole)                                                                       \
    extern "C" __global__ void __launch_bounds__(1024)                                                                 \
        name(const ELEMENT *wide, const ELEMENT *bias, e4m3 *out, float *scales, unsigned tokens, unsigned width,      \
             unsigned warps) {                                                                                         \
        activate_row<gated, whole>(wide, bias, out, scales, tokens, width, warps);                                     \
    }                                                                                                                  \
    EMULATED(name)

#ifdef FP8
QUANTISED_ACTIVATION(gelu_e4m3_packets, false, true)
QUANTISED_ACTIVATION(gelu_e4m3_values, false, false)
QUANTISED_ACTIVATION(silu_gate_e4m3_packets, true, true)
QUANTISED_ACTIVATION(silu_gate_e4m3_values, true, false)
#endif
