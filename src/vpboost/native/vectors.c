/* What Python asks of the processor. */
#include "flush.h"

uint64_t vpboost_flush_tiny(void) { return flush_tiny(); }

void vpboost_restore_tiny(uint64_t before) { restore_tiny(before); }

/* Which of the variants of learner.c suits it, by the bytes of its vectors. */
int64_t vpboost_vector_bytes(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return 64;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return 32;
#endif
    return 16;
}
