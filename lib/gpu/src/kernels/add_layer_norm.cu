// The residual stream takes up what a block of the layer computed, and is normalised for the next.
//
// x: (tokens, hidden) f32, the stream; y: (tokens, hidden) ELEMENT, added to it times a factor, or null; weight, bias: (hidden) f32;
// out: (tokens, hidden) ELEMENT, or e4m3 with a factor for each token in scales: (tokens) f32. A row is held in registers: it is
// read once, and its variance is that of the deviations from its mean. The difference of two large sums would lose what
// small channels have beside outliers near 1000.

// Subtracts the mean of a row's `hidden` values from those that a thread holds, `width` of them in the row or none at all,
// and returns the factor that gives it a variance of 1. What a thread holds beside them is 0. `row` is that of the block.
static __device__ __forceinline__ float centre(float (&held)[PACKETS][4], unsigned width, unsigned hidden, unsigned row,
                                               unsigned warps, float eps) {
    // One for each of the two sums: a warp may be at the second while others still read the first.
    __shared__ float of_warps[2][32];
    const unsigned threads = 32 * warps;

    float sum = 0.0f;
#pragma unroll
    for (unsigned k = 0; k < PACKETS; ++k) {
        sum += (held[k][0] + held[k][1]) + (held[k][2] + held[k][3]);
    }
    const float mean = over_row<Sum>(sum, of_warps[0], row * warps, warps) / static_cast<float>(hidden);

    float squares = 0.0f;
#pragma unroll
    for (unsigned k = 0; k < PACKETS; ++k) {
        const unsigned channel = channel_of(k, threads);
        const unsigned present = present_of(4, channel, width);
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            held[k][i] = i < present ? held[k][i] - mean : 0.0f;
        }
        squares += (held[k][0] * held[k][0] + held[k][1] * held[k][1]) +
                   (held[k][2] * held[k][2] + held[k][3] * held[k][3]);
    }
    const float variance = over_row<Sum>(squares, of_warps[1], row * warps, warps) / static_cast<float>(hidden);
    // A variance beyond f32 gives NaN: by 1/inf, the row would become the bias, without a sign that it is lost.
    return 1.0f / sqrtf(variance + eps) + (variance - variance);
}

template <bool WHOLE, typename OUT>
static __device__ __forceinline__ void normalise(float *x, const ELEMENT *y, const float *weight, const float *bias,
                                                 OUT *out, float *scales, unsigned tokens, unsigned hidden,
                                                 unsigned warps, float eps, float factor) {
    const unsigned threads = 32 * warps; // of a row
    const unsigned row = threadIdx.x / threads;
    const unsigned token = blockIdx.x * (blockDim.x / threads) + row;
    // Where the last block has more rows than there are tokens, these take part in its barriers with no value at all.
    const unsigned width = token < tokens ? hidden : 0;
    const unsigned long long offset = static_cast<unsigned long long>(token) * hidden;

    float held[PACKETS][4];
#pragma unroll
    for (unsigned k = 0; k < PACKETS; ++k) {
        const unsigned channel = channel_of(k, threads);
        const unsigned present = present_of(4, channel, width);
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            held[k][i] = 0.0f;
        }
        if (present > 0) {
            load<4, WHOLE>(held[k], x + offset + channel, present);
            if (y) {
                float added[4];
                load<4, WHOLE>(added, y + offset + channel, present);
#pragma unroll
                for (unsigned i = 0; i < 4; ++i) {
                    held[k][i] += factor * added[i];
                }
                store<4, WHOLE>(held[k], x + offset + channel, present);
            }
        }
    }
    const float scale = centre(held, width, hidden, row, warps, eps);
    // Where values are kept to find the largest, weights and biases of a whole packet would take registers that there are not.
    constexpr unsigned TOGETHER = sizeof(OUT) == 1 && WHOLE ? 2 : 4;

#pragma unroll
    for (unsigned k = 0; k < PACKETS; ++k) {
        const unsigned channel = channel_of(k, threads);
        const unsigned present = present_of(4, channel, width);
        if (present > 0) {
#pragma unroll
            for (unsigned first = 0; first < 4; first += TOGETHER) {
                float weights[TOGETHER];
                float biases[TOGETHER];
                load<TOGETHER, WHOLE>(weights, weight + channel + first, present_of(TOGETHER, first, present));
                load<TOGETHER, WHOLE>(biases, bias + channel + first, present_of(TOGETHER, first, present));
#pragma unroll
                for (unsigned i = 0; i < TOGETHER; ++i) {
                    held[k][first + i] = held[k][first + i] * scale * weights[i] + biases[i];
                }
            }
            if constexpr (sizeof(OUT) > 1) {
                store<4, WHOLE>(held[k], out + offset + channel, present);
            }
        }
    }
    if constexpr (sizeof(OUT) == 1) {
        quantise<WHOLE>(held, width, row, warps, token, out, scales);
    }
}

#define ADD_LAYER_NORM(name, whole, to, most_threads)                                                                  \
    extern "C" __global__ void __launch_bounds__(most_threads)                                                         \
        name(float *x, const ELEMENT *y, const float *weight, const float *bias, to *out, float *scales,               \
             unsigned tokens, unsigned hidden, unsigned warps, float eps, float factor) {                              \
        normalise<whole>(x, y, weight, bias, out, scales, tokens, hidden, warps, eps, factor);                         \
    }                                                                                                                  \
    EMULATED(name)

ADD_LAYER_NORM(add_layer_norm_packets, true, ELEMENT, 1024)
ADD_LAYER_NORM(add_layer_norm_values, false, ELEMENT, 1024)
#ifdef FP8
// With 1024, the compiler spills registers for Blackwell, although it uses no more of them.
ADD_LAYER_NORM(add_layer_norm_e4m3_packets, true, e4m3, 512)
ADD_LAYER_NORM(add_layer_norm_e4m3_values, false, e4m3, 512)
#endif
