/* shared_word.h: a counter that threads and processes wait for, sleeping on a futex.
 *
 * Bits of the value: 0 the poison, 1 to 7 the nudges, 8 to 63 the count. The futex watches the
 * lower half, so that an advance, a nudge and the poison all change what a sleeper compares and
 * none of them can be missed between looking and sleeping. */
#ifndef DPB_SHARED_WORD_H
#define DPB_SHARED_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DPB_SHARED_LINE  64 /* bytes of a cache line */
#define DPB_SHARED_NEVER INT64_MAX

struct dpb_shared_word {
    _Alignas(DPB_SHARED_LINE) _Atomic uint64_t value;
    _Atomic uint32_t sleepers;
    uint32_t local; /* 1: used inside one process only (a cheaper futex) */
};

enum dpb_shared_wake {
    DPB_SHARED_REACHED,
    DPB_SHARED_POISONED,
    DPB_SHARED_NUDGED,
    DPB_SHARED_LATE
};

/* Count one up, or several, and wake all sleepers. */
void dpb_shared_word_post(struct dpb_shared_word *word);
void dpb_shared_word_advance(struct dpb_shared_word *word, uint64_t by);

/* Make every wait for more than the present count end with DPB_SHARED_POISONED, for ever. */
void dpb_shared_word_poison(struct dpb_shared_word *word);

/* Make sleepers look around: waits that began with an older number of nudges end with
 * DPB_SHARED_NUDGED. At most 127 times in the life of a word. */
void dpb_shared_word_nudge(struct dpb_shared_word *word);

uint64_t dpb_shared_word_count(struct dpb_shared_word *word);
unsigned dpb_shared_word_nudges(struct dpb_shared_word *word);
bool dpb_shared_word_is_poisoned(struct dpb_shared_word *word);

/* Wait until the count reaches `target`: at most `spins` pause instructions, then asleep, until
 * dpb_clock_now_ns() reaches `deadline_ns` (DPB_SHARED_NEVER: no deadline). A target that is
 * reached wins over poison, poison over the deadline. */
enum dpb_shared_wake dpb_shared_word_wait(struct dpb_shared_word *word, uint64_t target,
                                          unsigned nudges, int64_t deadline_ns, int spins);

/* The same without sleeping: true when the count reached `target`; false after that many pauses and
 * yields, or when the word is poisoned. */
bool dpb_shared_word_spin(struct dpb_shared_word *word, uint64_t target, int spins, int yields);

/* Spin until the number is `target` or more; false when it is not after that many pauses. */
bool dpb_shared_spin(const _Atomic uint64_t *number, uint64_t target, int spins);

/* Ranks that meet: the last one to arrive lets all go on, so that each sleeps at most once. */
struct dpb_shared_barrier {
    _Alignas(DPB_SHARED_LINE) _Atomic uint64_t arrived;
    struct dpb_shared_word epoch;
};

/* Arrive at meeting number `meeting` (1, 2, ...); then wait for `epoch` to reach it. */
void dpb_shared_barrier_arrive(struct dpb_shared_barrier *barrier, uint64_t meeting, int ranks);

#endif
