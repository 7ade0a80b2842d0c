#include "shim.h"

#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <typeinfo>

#include <cxxabi.h>
#include <unistd.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_to_copy.h>
#include <ATen/ops/pin_memory.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace {

std::terminate_handler otherwise;

// Memory that C++ was refused where nobody catches it ends the program as memory does that Rust was refused: with one line and
// EX_TEMPFAIL, in place of SIGABRT.
void end() {
    const std::type_info *thrown = abi::__cxa_current_exception_type();
    if (thrown && *thrown == typeid(std::bad_alloc)) {
        constexpr char line[] = "gpu-embed: not enough memory: std::bad_alloc\n";
        [[maybe_unused]] auto written = write(STDERR_FILENO, line, sizeof line - 1);
        _exit(75);
    }
    otherwise();
}

__attribute__((constructor)) void set_end() { otherwise = std::set_terminate(end); }

void say(plmkit_failure *failure, bool out_of_memory, const std::string &what) {
    failure->out_of_memory = out_of_memory;
    // The lines after the first are a backtrace.
    const std::string line = what.substr(0, what.find('\n'));
    const std::size_t length = std::min(line.size(), sizeof(failure->what) - 1);
    std::memcpy(failure->what, line.data(), length);
    failure->what[length] = 0;
}

// An exception must not leave through a C function.
template <typename Work> bool guarded(plmkit_failure *failure, Work work) noexcept {
    try {
        work();
        return true;
    } catch (const c10::OutOfMemoryError &error) {
        say(failure, true, error.what_without_backtrace());
    } catch (const std::bad_alloc &error) {
        say(failure, true, error.what());
    } catch (const c10::Error &error) {
        say(failure, false, error.what_without_backtrace());
    } catch (const std::exception &error) {
        say(failure, false, error.what());
    } catch (...) {
        say(failure, false, "an exception that is none of C++'s own");
    }
    return false;
}

c10::Device cuda(int index) { return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)}; }

c10::Stream stream_of(int index, std::int64_t stream) {
    return c10::Stream::unpack3(stream, cuda(index).index(), c10::DeviceType::CUDA);
}

} // namespace

bool plmkit_varlen_attention(bool flash, const at::Tensor *query, const at::Tensor *key, const at::Tensor *value,
                             const at::Tensor *offsets, std::int64_t longest, double scale, at::Tensor **mixed,
                             plmkit_failure *failure) noexcept {
    return guarded(failure, [&] {
        at::Tensor found;
        if (flash) {
            found = std::get<0>(at::_flash_attention_forward(*query, *key, *value, *offsets, *offsets, longest, longest,
                                                             /*dropout_p=*/0.0, /*is_causal=*/false,
                                                             /*return_debug_mask=*/false, scale));
        } else {
            // Sequences of different lengths are one batch of all tokens: (1, tokens, heads, head_dim).
            auto of_batch = at::_efficient_attention_forward(
                query->unsqueeze(0), key->unsqueeze(0), value->unsqueeze(0), /*bias=*/std::nullopt, *offsets, *offsets,
                longest, longest, /*dropout_p=*/0.0, /*custom_mask_type=*/0, /*compute_log_sumexp=*/false, scale);
            found = std::get<0>(of_batch).squeeze(0);
        }
        *mixed = new at::Tensor(std::move(found));
    });
}

bool plmkit_device_memory(int index, std::size_t *total, plmkit_failure *failure) noexcept {
    return guarded(failure, [&] {
        auto *allocator = at::getDeviceAllocator(at::DeviceType::CUDA);
        const auto device = static_cast<c10::DeviceIndex>(index);
        *total = allocator->getMemoryInfo(device).second;
    });
}

bool plmkit_device_used(int index, std::size_t *now, std::size_t *peak, plmkit_failure *failure) noexcept {
    return guarded(failure, [&] {
        auto *allocator = at::getDeviceAllocator(at::DeviceType::CUDA);
        const auto device = static_cast<c10::DeviceIndex>(index);
        // The first of the statistics is of all sizes.
        const c10::CachingAllocator::Stat bytes = allocator->getDeviceStats(device).allocated_bytes[0];
        allocator->resetPeakStats(device);
        *now = static_cast<std::size_t>(bytes.current);
        *peak = static_cast<std::size_t>(bytes.peak);
    });
}

bool plmkit_device_current_stream(int index, std::int64_t *stream, plmkit_failure *failure) noexcept {
    return guarded(failure, [&] {
        const c10::impl::VirtualGuardImpl streams(c10::DeviceType::CUDA);
        *stream = streams.getStream(cuda(index)).id();
    });
}

bool plmkit_device_another_stream(int index, std::int64_t *stream, plmkit_failure *failure) noexcept {
    return guarded(failure, [&] {
        const c10::impl::VirtualGuardImpl streams(c10::DeviceType::CUDA);
        *stream = streams.getStreamFromGlobalPool(cuda(index)).id();
    });
}

void *plmkit_device_mark(int index, std::int64_t stream, plmkit_failure *failure) noexcept {
    std::unique_ptr<c10::Event> event;
    const bool marked = guarded(failure, [&] {
        // Events of the other flag know no time.
        event = std::make_unique<c10::Event>(c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT);
        event->record(stream_of(index, stream));
    });
    return marked ? event.release() : nullptr;
}

bool plmkit_device_follow(int index, std::int64_t stream, const void *mark, plmkit_failure *failure) noexcept {
    return guarded(failure, [&] { static_cast<const c10::Event *>(mark)->block(stream_of(index, stream)); });
}

bool plmkit_pin(const at::Tensor *tensor, at::Tensor **pinned, plmkit_failure *failure) noexcept {
    return guarded(failure, [&] { *pinned = new at::Tensor(tensor->pin_memory()); });
}

bool plmkit_device_copy_in(int index, std::int64_t stream, std::int64_t reader, const at::Tensor *pinned, at::Tensor **copy,
                         plmkit_failure *failure) noexcept {
    return guarded(failure, [&] {
        at::Tensor made;
        {
            // The memory is taken from what belongs to this stream, so that the copy need not wait for those who had it.
            const c10::StreamGuard guard(stream_of(index, stream));
            made = at::_to_copy(*pinned, pinned->options().device(cuda(index)), /*non_blocking=*/true);
        }
        // Else the next copy might get the memory while the reader still reads.
        made.record_stream(stream_of(index, reader));
        *copy = new at::Tensor(std::move(made));
    });
}

bool plmkit_device_copy_out(int index, std::int64_t stream, const at::Tensor *tensor, at::Tensor **copy,
                          plmkit_failure *failure) noexcept {
    return guarded(failure, [&] {
        const c10::StreamGuard guard(stream_of(index, stream));
        // What is not to be waited for is page-locked.
        at::Tensor made = at::_to_copy(*tensor, tensor->options().device(c10::DeviceType::CPU), /*non_blocking=*/true);
        // Else what is computed next might get the memory while it is still copied.
        tensor->record_stream(stream_of(index, stream));
        *copy = new at::Tensor(std::move(made));
    });
}

bool plmkit_device_wait(const void *mark, plmkit_failure *failure) noexcept {
    return guarded(failure, [&] { static_cast<const c10::Event *>(mark)->synchronize(); });
}

bool plmkit_device_between(const void *first, const void *second, double *milliseconds,
                         plmkit_failure *failure) noexcept {
    return guarded(failure, [&] {
        *milliseconds = static_cast<const c10::Event *>(first)->elapsedTime(*static_cast<const c10::Event *>(second));
    });
}

void plmkit_device_forget(void *mark) noexcept { delete static_cast<c10::Event *>(mark); }

bool plmkit_device_release(plmkit_failure *failure) noexcept {
    return guarded(failure, [&] { at::getDeviceAllocator(at::DeviceType::CUDA)->emptyCache(); });
}
