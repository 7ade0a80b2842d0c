// A GPU that computes nothing: device memory is the host's, kernels do nothing, and every call that matters is a line of a log.
//
// One library takes the place of libcudart, libcublas, libcublasLt and libcuda (see tree.sh). What each of them needs of the
// others is here. A call that a real device would refuse is a line "bad" of the log and an error of the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

// A function that no header declares.
#define EXPORT extern "C"

namespace stand_in {

// The compute capability is STAND_IN_CAPABILITY, 90 (9.0) by default. Beside it the device is an H100.
int capability();
constexpr unsigned THREADS_PER_BLOCK = 1024;
// Shared memory of a block, and what one gets that asks for more.
constexpr std::size_t SHARED = 48 << 10;
std::size_t shared_opt_in();
constexpr const char *NAME = "NVIDIA H100 stand-in";
constexpr int VERSION = 13000;

// Everything else is under it.
extern std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;

// A line of the log: STAND_IN_LOG/PID.log, where that folder is named.
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
// What a real device would refuse, or undefined behaviour: a line of the log and of standard error.
__attribute__((format(printf, 1, 2))) void bad(const char *format, ...);

// How many GPUs there are: STAND_IN_GPUS, 1 by default. The one that this thread computes on.
int devices();
int &current_device();

// Memory of the device, STAND_IN_MIB of it in all, 81,559 by default; null where there is no more.
void *take(std::size_t bytes);
bool give_back(void *pointer);
std::size_t memory_left();
std::size_t memory();
// Page-locked memory of the host.
void *take_pinned(std::size_t bytes);
bool give_back_pinned(void *pointer);
enum class Place { Device, Pinned, Elsewhere };
Place place_of(const void *pointer);

// Streams by handle: 0 is the default one's, which is always there. -1: not a stream.
void *new_stream();
bool end_stream(void *stream);
int number_of(const void *stream);

// A point in a stream.
struct Event {
    int number = 0;
    int stream = -1; // none yet
    std::uint64_t after = 0;
    double ms = 0;
};
void record(Event *event, void *stream);
void wait(void *stream, const Event *event);
// The host waits, or learns that the device has come so far: copies to the host that it was not to look at are there.
void reach(const Event *event);
void reach_stream(const void *stream);
void reach_all();

// Copies as the runtime does: `asynchronous` to page-locked memory only when the host has waited for it.
// Returns whether both ends lie where they can.
bool copy(void *to, const void *from, std::size_t bytes, bool asynchronous, void *stream);

struct Function {
    std::string name;
    std::size_t dynamic_shared = SHARED; // the most that a launch may ask for
};
struct Size {
    unsigned x, y, z;
};
// Whether a device would take it.
bool launch(const Function *function, Size grid, Size block, std::size_t shared, void *stream);
// The name of a kernel, without its arguments.
std::string readable(const char *mangled);

} // namespace stand_in
