#include "shim.h"

#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace {

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

} // namespace

bool plmkit_varlen_attention(bool flash, const at::Tensor *query, const at::Tensor *key, const at::Tensor *value,
                             const at::Tensor *offsets, std::int64_t longest, at::Tensor **mixed,
                             plmkit_failure *failure) noexcept {
    return guarded(failure, [&] {
        at::Tensor found;
        if (flash) {
            found = std::get<0>(at::_flash_attention_forward(*query, *key, *value, *offsets, *offsets, longest, longest,
                                                             /*dropout_p=*/0.0, /*is_causal=*/false,
                                                             /*return_debug_mask=*/false));
        } else {
            // Sequences of different lengths are one batch of all tokens: (1, tokens, heads, head_dim).
            auto of_batch = at::_efficient_attention_forward(
                query->unsqueeze(0), key->unsqueeze(0), value->unsqueeze(0), /*bias=*/std::nullopt, *offsets, *offsets,
                longest, longest, /*dropout_p=*/0.0, /*custom_mask_type=*/0);
            found = std::get<0>(of_batch).squeeze(0);
        }
        *mixed = new at::Tensor(std::move(found));
    });
}

bool plmkit_cuda_memory(int index, std::size_t *total, plmkit_failure *failure) noexcept {
    return guarded(failure, [&] {
        auto *allocator = at::getDeviceAllocator(at::DeviceType::CUDA);
        const auto device = static_cast<c10::DeviceIndex>(index);
        *total = allocator->getMemoryInfo(device).second;
    });
}

void *plmkit_cuda_mark(int index, plmkit_failure *failure) noexcept {
    std::unique_ptr<c10::Event> event;
    const bool marked = guarded(failure, [&] {
        const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
        const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
        event = std::make_unique<c10::Event>(c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT);
        event->record(cuda.getStream(device));
    });
    return marked ? event.release() : nullptr;
}

bool plmkit_cuda_wait(const void *mark, plmkit_failure *failure) noexcept {
    return guarded(failure, [&] { static_cast<const c10::Event *>(mark)->synchronize(); });
}

bool plmkit_cuda_between(const void *first, const void *second, double *milliseconds,
                         plmkit_failure *failure) noexcept {
    return guarded(failure, [&] {
        *milliseconds = static_cast<const c10::Event *>(first)->elapsedTime(*static_cast<const c10::Event *>(second));
    });
}

void plmkit_cuda_forget(void *mark) noexcept { delete static_cast<c10::Event *>(mark); }

bool plmkit_cuda_release(plmkit_failure *failure) noexcept {
    return guarded(failure, [&] { at::getDeviceAllocator(at::DeviceType::CUDA)->emptyCache(); });
}
