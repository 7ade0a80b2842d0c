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
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            held[k][i] *= scale;
        }
    }
    // Weights and biases of a whole packet at once would take registers that there are not.
    constexpr unsigned TOGETHER = WHOLE ? 2 : 4;

#pragma unroll
    for (unsigned k = 0; k < PACKETS; ++k) {
        const unsigned channel = channel_of(k, threads);
        const unsigned present = present_of(4, channel, here);
        if (present > 0) {
            const unsigned place = keys * width + channel;
            // 32 bits hold a place in any table of turns: one of 2^32 would take 32 GiB.
            const unsigned turn = static_cast<unsigned>(positions[token]) * (head_dim / 2);
#pragma unroll
            for (unsigned first = 0; first < 4; first += TOGETHER) {
                float weights[TOGETHER];
                float biases[TOGETHER];
                load<TOGETHER, WHOLE>(weights, weight + place + first, present_of(TOGETHER, first, present));
                load<TOGETHER, WHOLE>(biases, bias + place + first, present_of(TOGETHER, first, present));
#pragma unroll
                for (unsigned j = 0; j < TOGETHER; j += 2) {
                    const unsigned i = first + j;
                    // Where only two channels are left, the others are 0, and so is what they become.
                    const float2 by = turns[turn + (channel + (i < present ? i : 0)) % head_dim / 2];
                    const float real = held[k][i] * weights[j] + biases[j];
                    const float imaginary = held[k][i + 1] * weights[j + 1] + biases[j + 1];
                    held[k][i] = real * by.x - imaginary * by.y;
                    held[k][i + 1] = real * by.y + imaginary * by.x;
                }
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
