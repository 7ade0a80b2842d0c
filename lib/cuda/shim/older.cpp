// What the headers of GCC from 9 on use of glibc and libstdc++, and those of RHEL 8, glibc 2.28 and GCC 8, do not have: the library runs
// there, and libtorch does. Nothing else sees these.

#include <ios>
#include <new>
#include <sstream>

// glibc's, from 2.32: whether there has only ever been one thread. False is always right.
__attribute__((visibility("hidden"))) char single_threaded __asm__("__libc_single_threaded") = 0;

// libstdc++'s constructor, from GLIBCXX_3.4.26, by the one that it has had before.
__attribute__((visibility("hidden"))) void construct(std::ostringstream *stream) __asm__(
    "_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");
void construct(std::ostringstream *stream) { new (stream) std::ostringstream(std::ios_base::out); }

// libstdc++'s, from GLIBCXX_3.4.29, which small code calls: an array has more bytes than there are addresses.
[[noreturn]] __attribute__((visibility("hidden"))) void refuse_length() __asm__("_ZSt28__throw_bad_array_new_lengthv");
void refuse_length() { throw std::bad_array_new_length(); }
