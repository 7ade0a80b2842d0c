// What libtorch has and its C interface for Rust does not: attention over sequences of different lengths, and the memory
// of a device. Nothing here needs CUDA to be compiled: the operations are found when libtorch_cuda is loaded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace at {
class Tensor;
}

extern "C" {

// What an operation ended with, if not well.
struct plmkit_failure {
    // Whether memory ran out: the same work in smaller pieces may succeed.
    bool out_of_memory;
    // One line, ended by 0.
    char what[1024];
};

// Softmax attention in which a token sees the tokens of its own sequence and no others. query, key, value:
// (tokens, heads, head_dim); offsets: (sequences + 1) i32 on the same device; longest: the tokens of the longest sequence.
// Scores are multiplied by scale. flash: by flash attention, which has f16 and bf16 from compute capability 8.0 on; else by
// memory-efficient attention, which has f32 too, and older devices. *mixed becomes a new tensor of the shape of query.
// Returns whether it went well; failure says what did not.
bool plmkit_varlen_attention(bool flash, const at::Tensor *query, const at::Tensor *key, const at::Tensor *value,
                             const at::Tensor *offsets, std::int64_t longest, double scale, at::Tensor **mixed,
                             plmkit_failure *failure) noexcept;

// Bytes that CUDA device `index` has, whoever uses them.
bool plmkit_device_memory(int index, std::size_t *total, plmkit_failure *failure) noexcept;

// Bytes of CUDA device `index` that tensors of this process hold now, and the most since the last call.
bool plmkit_device_used(int index, std::size_t *now, std::size_t *peak, plmkit_failure *failure) noexcept;

// Streams of a CUDA device go by their number in libtorch.

// The one on which libtorch computes in this thread.
bool plmkit_device_current_stream(int index, std::int64_t *stream, plmkit_failure *failure) noexcept;

// One beside it, of those that libtorch keeps; the next call gives another.
bool plmkit_device_another_stream(int index, std::int64_t *stream, plmkit_failure *failure) noexcept;

// A point in the work of a stream: after all that was put on it. NULL if that did not go well.
void *plmkit_device_mark(int index, std::int64_t stream, plmkit_failure *failure) noexcept;

// What is put on a stream from now on comes after a point, of any stream of the device.
bool plmkit_device_follow(int index, std::int64_t stream, const void *mark, plmkit_failure *failure) noexcept;

// *pinned becomes a copy of a tensor of the host in page-locked memory.
bool plmkit_pin(const at::Tensor *tensor, at::Tensor **pinned, plmkit_failure *failure) noexcept;

// *copy becomes a copy of a page-locked tensor on the device, made by `stream` while the program goes on, to be read by `reader`
// after that. Neither has to be kept until it is made, nor until it is read: libtorch keeps their memory.
bool plmkit_device_copy_in(int index, std::int64_t stream, std::int64_t reader, const at::Tensor *pinned, at::Tensor **copy,
                         plmkit_failure *failure) noexcept;

// *copy becomes a copy of a tensor of the device in page-locked memory of the host, made by `stream` while the program goes on. It
// can be read when the stream has passed. libtorch keeps the memory of both until then.
bool plmkit_device_copy_out(int index, std::int64_t stream, const at::Tensor *tensor, at::Tensor **copy,
                          plmkit_failure *failure) noexcept;

// Waits until the device has come to a point.
bool plmkit_device_wait(const void *mark, plmkit_failure *failure) noexcept;

// Milliseconds from one point to another, both of which the device has passed.
bool plmkit_device_between(const void *first, const void *second, double *milliseconds,
                         plmkit_failure *failure) noexcept;

// Ends what plmkit_device_mark began.
void plmkit_device_forget(void *mark) noexcept;

// Gives what libtorch keeps for later back to the device.
bool plmkit_device_release(plmkit_failure *failure) noexcept;
}
