// Queries and keys are normalised over all their heads, then rotated, in place.
//
// qkv, positions, turns: as in rope.cu; weight, bias: (2, width) f32, of queries and of keys. A row is the queries or the
// keys of a token, held in registers as in add_layer_norm.cu. The four channels of a packet are two complex numbers.

template <bool WHOLE>
static __device__ __forceinline__ void normalise_and_rotate(ELEMENT *qkv, const float *weight, const float *bias,
                                                            const int *positions, const float2 *turns, unsigned tokens,
                                                            unsigned width, unsigned head_dim, unsigned warps,
                                                            float eps) {
    const unsigned threads = 32 * warps; // of a row
    const unsigned row = threadIdx.x / threads;
    const unsigned both = blockIdx.x * (blockDim.x / threads) + row;
    const unsigned token = both / 2;
    const unsigned keys = both % 2;
    const unsigned here = token < tokens ? width : 0;
    ELEMENT *at = qkv + (static_cast<unsigned long long>(token) * 3 + keys) * width;

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
            load<4, WHOLE>(held[k], at + channel, present);
        }
    }
    const float scale = centre(held, here, width, row, warps, eps);

#pragma unroll
    for (unsigned k = 0; k < PACKETS; ++k) {
        const unsigned channel = channel_of(k, threads);
        const unsigned present = present_of(4, channel, here);
        if (present > 0) {
            float weights[4];
            float biases[4];
            load<4, WHOLE>(weights, weight + keys * width + channel, present);
            load<4, WHOLE>(biases, bias + keys * width + channel, present);
            const float2 *turn = turns + static_cast<unsigned long long>(positions[token]) * (head_dim / 2);
#pragma unroll
            for (unsigned i = 0; i < 4; i += 2) {
                // Where only two channels are left, the others are 0, and so is what they become.
                const float2 by = turn[(channel + (i < present ? i : 0)) % head_dim / 2];
                const float real = held[k][i] * scale * weights[i] + biases[i];
                const float imaginary = held[k][i + 1] * scale * weights[i + 1] + biases[i + 1];
                held[k][i] = real * by.x - imaginary * by.y;
                held[k][i + 1] = real * by.y + imaginary * by.x;
            }
            store<4, WHOLE>(held[k], at + channel, present);
        }
    }
}

#define NORM_ROPE(name, whole)                                                                                         \
    extern "C" __global__ void __launch_bounds__(1024)                                                                 \
        name(ELEMENT *qkv, const float *weight, const float *bias, const int *positions, const float2 *turns,          \
             unsigned tokens, unsigned width, unsigned head_dim, unsigned warps, float eps) {                          \
        normalise_and_rotate<whole>(qkv, weight, bias, positions, turns, tokens, width, head_dim, warps, eps);         \
    }                                                                                                                  \
    EMULATED(name)

NORM_ROPE(norm_rope_packets, true)
NORM_ROPE(norm_rope_values, false)
