// Rotary position embedding, in place on the queries and keys of a fused projection.
//
// qkv: (tokens, 3, heads, head_dim) ELEMENT; positions: (tokens); turns: (rows, head_dim / 2) cosines and sines.
// Channels 2i and 2i + 1 of a head are one complex number, and the rotation is one complex product. Values stay as
// they are.

template <unsigned N, bool WHOLE>
static __device__ __forceinline__ void rotate(ELEMENT *qkv, const int *positions, const float2 *turns, unsigned tokens,
                                              unsigned heads, unsigned head_dim, unsigned tokens_per_block) {
    const unsigned rotated = 2 * heads * head_dim; // channels of the queries and keys of a token
    const unsigned pieces = rotated / N;
    const unsigned first_token = blockIdx.x * tokens_per_block;
    const unsigned here = present_of(tokens_per_block, first_token, tokens);
    for (unsigned piece = threadIdx.x; piece < here * pieces; piece += blockDim.x) {
        const unsigned token = first_token + piece / pieces;
        const unsigned channel = piece % pieces * N;
        const float2 *turn = turns + static_cast<unsigned long long>(positions[token]) * (head_dim / 2);
        turn += channel % head_dim / 2;
        ELEMENT *at = qkv + static_cast<unsigned long long>(token) * (rotated / 2 * 3) + channel;
        float values[N];
        load<N, WHOLE>(values, at, N);
#pragma unroll
        for (unsigned i = 0; i < N; i += 2) {
            const float2 by = turn[i / 2];
            const float real = values[i] * by.x - values[i + 1] * by.y;
            values[i + 1] = values[i] * by.y + values[i + 1] * by.x;
            values[i] = real;
        }
        store<N, WHOLE>(values, at, N);
    }
}

#define ROPE(name, n, whole)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) name(ELEMENT *qkv, const int *positions, const float2 *turns,    \
                                                           unsigned tokens, unsigned heads, unsigned head_dim,         \
                                                           unsigned tokens_per_block) {                                \
        rotate<n, whole>(qkv, positions, turns, tokens, heads, head_dim, tokens_per_block);                            \
    }                                                                                                                  \
    EMULATED(name)

ROPE(rope_packets, 16 / sizeof(ELEMENT), true)
ROPE(rope_values, 2, false)
