// What the four libraries share: the log, memory, streams, events and launches.
#include "stand_in.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <vector>

namespace stand_in {

std::recursive_mutex mutex;

namespace {

int log_file() {
    static const int file = [] {
        const char *folder = std::getenv("STAND_IN_LOG");
        if (!folder || !*folder) {
            return -1;
        }
        const std::string path = std::string(folder) + "/" + std::to_string(getpid()) + ".log";
        const int opened = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (opened < 0) {
            std::perror(path.c_str());
            std::abort();
        }
        return opened;
    }();
    return file;
}

// A whole line at once, so that a killed process leaves whole ones.
void write_line(int file, const char *prefix, const char *format, va_list values) {
    char line[1024];
    const int start = std::snprintf(line, sizeof line, "%s", prefix);
    const int room = static_cast<int>(sizeof line) - 1 - start;
    const int length = std::min(std::vsnprintf(line + start, static_cast<std::size_t>(room), format, values), room - 1);
    line[start + length] = '\n';
    if (write(file, line, static_cast<std::size_t>(start + length + 1)) < 0) {
        std::abort();
    }
}

std::size_t number(const char *variable, std::size_t otherwise) {
    const char *text = std::getenv(variable);
    return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Block {
    std::size_t bytes;
    Place place;
};
std::map<std::uintptr_t, Block> blocks;
std::size_t taken = 0;

// The block that holds an address, or the end.
auto block_of(const void *pointer) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    auto found = blocks.upper_bound(address);
    if (found == blocks.begin()) {
        return blocks.end();
    }
    --found;
    return address < found->first + found->second.bytes ? found : blocks.end();
}

void *map(std::size_t bytes, Place place) {
    void *pointer = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pointer == MAP_FAILED) {
        return nullptr;
    }
    blocks[reinterpret_cast<std::uintptr_t>(pointer)] = {bytes, place};
    return pointer;
}

std::size_t unmap(void *pointer, Place place) {
    const auto found = blocks.find(reinterpret_cast<std::uintptr_t>(pointer));
    if (found == blocks.end() || found->second.place != place) {
        bad("memory %p is given back and was never taken", pointer);
        return 0;
    }
    const std::size_t bytes = found->second.bytes;
    blocks.erase(found);
    munmap(pointer, bytes);
    return bytes;
}

// Handles of streams are addresses of their numbers.
std::set<const void *> streams;
// How many things each stream was told.
std::map<int, std::uint64_t> told;

// A copy to the host that the host has not waited for.
struct Coming {
    int stream;
    std::uint64_t at;
    void *to;
    const void *from;
    std::size_t bytes;
};
std::vector<Coming> coming;

template <typename Chosen> void arrive(Chosen chosen) {
    const auto rest = std::stable_partition(coming.begin(), coming.end(), [&](const Coming &copy) { return !chosen(copy); });
    for (auto copy = rest; copy != coming.end(); ++copy) {
        std::memcpy(copy->to, copy->from, copy->bytes);
    }
    coming.erase(rest, coming.end());
}

} // namespace

void say(const char *format, ...) {
    if (log_file() < 0) {
        return;
    }
    va_list values;
    va_start(values, format);
    write_line(log_file(), "", format, values);
    va_end(values);
}

void bad(const char *format, ...) {
    va_list values;
    va_start(values, format);
    write_line(STDERR_FILENO, "stand-in: ", format, values);
    va_end(values);
    if (log_file() >= 0) {
        va_start(values, format);
        write_line(log_file(), "bad ", format, values);
        va_end(values);
    }
}

int capability() { return static_cast<int>(number("STAND_IN_CAPABILITY", 90)); }

std::size_t shared_opt_in() {
    switch (capability()) {
    case 75:
        return 64 << 10;
    case 80:
        return 163 << 10;
    case 86:
    case 89:
    case 120:
        return 99 << 10;
    default:
        return 227 << 10;
    }
}

int devices() { return static_cast<int>(number("STAND_IN_GPUS", 1)); }

int &current_device() {
    thread_local int device = 0;
    return device;
}

std::size_t memory() { return number("STAND_IN_MIB", 81559) << 20; }

std::size_t memory_left() { return memory() - taken; }

void *take(std::size_t bytes) {
    const Lock lock(mutex);
    if (bytes > memory_left()) {
        say("refuse %zu", bytes);
        return nullptr;
    }
    void *pointer = map(bytes, Place::Device);
    taken += pointer ? bytes : 0;
    say("take %zu %p", bytes, pointer);
    return pointer;
}

bool give_back(void *pointer) {
    const Lock lock(mutex);
    const std::size_t bytes = unmap(pointer, Place::Device);
    taken -= bytes;
    say("give %zu %p", bytes, pointer);
    return bytes > 0;
}

void *take_pinned(std::size_t bytes) {
    const Lock lock(mutex);
    void *pointer = map(bytes, Place::Pinned);
    say("pin %zu %p", bytes, pointer);
    return pointer;
}

bool give_back_pinned(void *pointer) {
    const Lock lock(mutex);
    const std::size_t bytes = unmap(pointer, Place::Pinned);
    say("unpin %zu %p", bytes, pointer);
    return bytes > 0;
}

Place place_of(const void *pointer) {
    const Lock lock(mutex);
    const auto found = block_of(pointer);
    return found == blocks.end() ? Place::Elsewhere : found->second.place;
}

void *new_stream() {
    const Lock lock(mutex);
    auto *stream = new int(static_cast<int>(told.size()) + 1);
    streams.insert(stream);
    told[*stream] = 0;
    return stream;
}

bool end_stream(void *stream) {
    const Lock lock(mutex);
    return streams.erase(stream) > 0;
}

int number_of(const void *stream) {
    const Lock lock(mutex);
    // cudaStreamLegacy is the default one by another name.
    if (stream == nullptr || stream == reinterpret_cast<const void *>(1)) {
        return 0;
    }
    return streams.count(stream) > 0 ? *static_cast<const int *>(stream) : -1;
}

void record(Event *event, void *stream) {
    const Lock lock(mutex);
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->stream = number_of(stream);
    event->after = ++told[event->stream];
    event->ms = static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
    say("record %d %d", event->stream, event->number);
}

void wait(void *stream, const Event *event) {
    const Lock lock(mutex);
    say("wait %d %d", number_of(stream), event->number);
}

void reach(const Event *event) {
    const Lock lock(mutex);
    arrive([&](const Coming &copy) { return copy.stream == event->stream && copy.at <= event->after; });
}

void reach_stream(const void *stream) {
    const Lock lock(mutex);
    arrive([&](const Coming &copy) { return copy.stream == number_of(stream); });
}

void reach_all() {
    const Lock lock(mutex);
    arrive([](const Coming &) { return true; });
}

bool copy(void *to, const void *from, std::size_t bytes, bool asynchronous, void *stream) {
    const Lock lock(mutex);
    const Place there = place_of(to), here = place_of(from);
    for (const void *end : {static_cast<const void *>(to), from}) {
        const auto block = block_of(end);
        if (block != blocks.end() && reinterpret_cast<std::uintptr_t>(end) + bytes > block->first + block->second.bytes) {
            bad("a copy of %zu bytes goes past the end of its memory", bytes);
            return false;
        }
    }
    const int on = number_of(stream);
    if (on < 0) {
        bad("a copy on a stream that is none");
        return false;
    }
    const bool out = here == Place::Device && there != Place::Device;
    const bool in = here != Place::Device && there == Place::Device;
    // The host waits for copies from and to memory that is not page-locked.
    const bool paged = (out ? there : here) == Place::Elsewhere;
    const char *way = out ? "out" : in ? "in" : here == Place::Device ? "within" : "host";
    say("copy %d %s %s %zu", on, way, asynchronous && !paged ? "async" : "sync", bytes);
    const std::uint64_t at = ++told[on];
    if (out && asynchronous && !paged) {
        std::memset(to, 0xff, bytes); // NaN for one who reads too early
        coming.push_back({on, at, to, from, bytes});
    } else {
        std::memmove(to, from, bytes);
    }
    return true;
}

bool launch(const Function *function, Size grid, Size block, std::size_t shared, void *stream) {
    const Lock lock(mutex);
    if (!function) {
        bad("a launch of no kernel");
        return false;
    }
    const char *name = function->name.c_str();
    const int on = number_of(stream);
    if (on < 0) {
        bad("%s is launched on a stream that is none", name);
        return false;
    }
    say("launch %d %u,%u,%u %u,%u,%u %zu %s", on, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, name);
    ++told[on];
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 0xffff || grid.z > 0xffff) {
        bad("%s: a grid of %u x %u x %u", name, grid.x, grid.y, grid.z);
        return false;
    }
    const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
    if (threads == 0 || threads > THREADS_PER_BLOCK || block.z > 64) {
        bad("%s: a block of %u x %u x %u", name, block.x, block.y, block.z);
        return false;
    }
    if (shared > function->dynamic_shared) {
        bad("%s: %zu bytes of shared memory, where %zu are allowed", name, shared, function->dynamic_shared);
        return false;
    }
    return true;
}

std::string readable(const char *mangled) {
    int status = 0;
    char *whole = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    std::string name = whole ? whole : mangled;
    std::free(whole);
    const std::string anonymous = "(anonymous namespace)::";
    for (std::size_t at; (at = name.find(anonymous)) != std::string::npos;) {
        name.erase(at, anonymous.size());
    }
    if (name.rfind("void ", 0) == 0) {
        name.erase(0, 5);
    }
    return name.substr(0, name.find_first_of("<("));
}

} // namespace stand_in

// Every function that the real library has and this one lacks leads here: see tree.sh.
EXPORT void stand_in_unimplemented(const char *name) {
    stand_in::bad("%s is called, which nobody has implemented", name);
    std::abort();
}
