/* Numbers too small for full precision, as leaves of soft trees far from a row are, take processors a hundred times as
 * long. Between flush_tiny and restore_tiny they count as zero in this thread, as they do in XLA's programs. */
#include <stdint.h>

static inline uint64_t flush_tiny(void) {
    uint64_t before = 0;
#if defined(__x86_64__)
    before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr((unsigned)before | 0x8040); /* results and operands */
#elif defined(__aarch64__)
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(before));
    __asm__ __volatile__("msr fpcr, %0" : : "r"(before | (uint64_t)1 << 24));
#endif
    return before;
}

static inline void restore_tiny(uint64_t before) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((unsigned)before);
#elif defined(__aarch64__)
    __asm__ __volatile__("msr fpcr, %0" : : "r"(before));
#else
    (void)before;
#endif
}
