// A device named CUDA whose streams and events only write down what they are told, and whose memory is the host's: loaded in the
// place of libtorch_cuda, it shows what a GPU would be told of copies, in which order.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

constexpr auto CUDA = c10::DeviceType::CUDA;

std::string said;
std::int64_t current = 0;

void say(const std::string &what) { said += what + "\n"; }
std::string name(std::int64_t stream) { return "stream " + std::to_string(stream); }

struct Streams final : c10::impl::DeviceGuardImplInterface {
    using Device = c10::Device;
    using Stream = c10::Stream;

    static Stream stream(std::int64_t id) { return Stream(Stream::UNSAFE, Device(CUDA, 0), id); }
    // Events are numbers from 1 on.
    static std::string event(void *event) { return "event " + std::to_string(reinterpret_cast<std::intptr_t>(event)); }

    c10::DeviceType type() const override { return CUDA; }
    Device exchangeDevice(Device) const override { return {CUDA, 0}; }
    Device getDevice() const override { return {CUDA, 0}; }
    void setDevice(Device) const override {}
    void uncheckedSetDevice(Device) const noexcept override {}
    Stream getStream(Device) const override { return stream(current); }
    Stream getDefaultStream(Device) const override { return stream(0); }
    Stream getStreamFromGlobalPool(Device, bool) const override {
        static std::int64_t given = 0;
        return stream(++given);
    }
    Stream exchangeStream(Stream next) const override {
        const Stream before = stream(current);
        current = next.id();
        return before;
    }
    c10::DeviceIndex deviceCount() const noexcept override { return 1; }
    void record(void **event, const Stream &stream, c10::DeviceIndex, c10::EventFlag flag) const override {
        static std::intptr_t given = 0;
        if (!*event) {
            *event = reinterpret_cast<void *>(++given);
        }
        say(name(stream.id()) + " records " + Streams::event(*event) +
            (flag == c10::EventFlag::BACKEND_DEFAULT ? "" : " without a time"));
    }
    void block(void *event, const Stream &stream) const override {
        say(name(stream.id()) + " waits for " + Streams::event(event));
    }
    bool queryEvent(void *) const override { return true; }
    void destroyEvent(void *, c10::DeviceIndex) const noexcept override {}
    // As many milliseconds as there are events between.
    double elapsedTime(void *first, void *second, c10::DeviceIndex) const override {
        return static_cast<double>(reinterpret_cast<std::intptr_t>(second) - reinterpret_cast<std::intptr_t>(first));
    }
    void synchronizeEvent(void *event) const override { say("the host waits for " + Streams::event(event)); }
    void synchronizeStream(const Stream &) const override { say("the host waits for a stream"); }
    void synchronizeDevice(c10::DeviceIndex) const override { say("the host waits for the device"); }
};

// Memory of the host under the name of the device.
struct Memory final : c10::Allocator {
    c10::DataPtr allocate(std::size_t bytes) override {
        say("memory of " + name(current));
        void *data = std::malloc(bytes);
        return {data, data, &std::free, c10::Device(CUDA, 0)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
    void copy_data(void *to, const void *from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

Memory memory;

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> kind, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat>) {
    const c10::DispatchKeySet keys(c10::DispatchKey::CUDA);
    return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &memory, keys, kind.value_or(at::kFloat), std::nullopt);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> kind,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
    const c10::DispatchKeySet keys(c10::DispatchKey::CUDA);
    return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory, keys,
                                             kind.value_or(at::kFloat));
}

at::Tensor &copy(at::Tensor &to, const at::Tensor &from, bool non_blocking) {
    const auto &host = to.is_cpu() ? to : from;
    say(name(current) + " copies " + (to.is_cpu() ? "out" : "in") + (non_blocking ? "" : ", and the host waits") +
        (host.is_pinned() ? "" : ", not pinned"));
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
    return to;
}

void record_stream(at::Tensor &, c10::Stream stream) { say("memory is kept for " + name(stream.id())); }

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
    library.impl("empty.memory_format", empty);
    library.impl("empty_strided", empty_strided);
    library.impl("copy_", copy);
    library.impl("record_stream", record_stream);
}

// Page-locked memory is what was taken here.
struct Pinned final : c10::Allocator {
    static inline std::set<const void *> taken;
    static void give_back(void *data) {
        taken.erase(data);
        std::free(data);
    }
    c10::DataPtr allocate(std::size_t bytes) override {
        void *data = std::malloc(bytes);
        taken.insert(data);
        return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    void copy_data(void *to, const void *from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

Pinned pinned;

const Streams streams;
const c10::impl::DeviceGuardImplRegistrar registered(CUDA, &streams);

} // namespace

namespace at {

// libtorch finds it by this name.
struct CUDAHooks final : CUDAHooksInterface {
    explicit CUDAHooks(CUDAHooksArgs) {}
    void init() const override {}
    bool hasCUDA() const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    bool isPinnedPtr(const void *data) const override { return Pinned::taken.count(data) > 0; }
    Allocator *getPinnedMemoryAllocator() const override { return &pinned; }
};

REGISTER_CUDA_HOOKS(CUDAHooks)

} // namespace at

extern "C" const char *plmkit_said() {
    static std::string told;
    told.swap(said);
    said.clear();
    return told.c_str();
}
