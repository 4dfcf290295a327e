/* Collectives over MPI against sums computed here; started by mpirun (run_ranks). */
#include "mpi_ranks.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_mpi_start.h"
#include "../mpi_private.h"
#include "half_reference.h"

#define COUNT_MOST 300007 /* fp32: more than one piece of a message */
#define GUARD      64     /* elements behind the last one, which must stay as they are */

void self_open(struct self *self, int algorithm, int progress, int64_t timeout_ns, dpb_status *st)
{
    const struct dpb_comm_mpi_options options = {algorithm, progress};
    const struct dpb_comm_config config = {
            .rank = self->rank,
            .size = self->size,
            .local_rank = self->rank,
            .ranks_per_node = self->size % 2 == 0   ? self->size / 2
                              : self->size % 3 == 0 ? self->size / 3
                                                    : 1,
            .segment_fd = -1,
            .timeout_ns = timeout_ns,
            .options = &options,
    };
    dpb_status opened = self->ops->open(&config, &self->comm);
    if (st)
        *st = opened;
    else
        RANK_TRUE(self, opened == DPB_OK);
}

/* ---- words ---- */

static const char *program;

static void word_path(char *path, size_t path_bytes, const char *word, int rank)
{
    snprintf(path, path_bytes, "%s.%s.%d", program, word, rank);
}

void leave_word(const struct self *self, const char *word, const char *text)
{
    char begun[4096], path[4096];
    snprintf(begun, sizeof(begun), "%s.begun.%d", program, self->rank);
    word_path(path, sizeof(path), word, self->rank);
    FILE *file = fopen(begun, "w");
    RANK_TRUE(self, file && fprintf(file, "%s\n", text) > 0 && fclose(file) == 0);
    RANK_TRUE(self, rename(begun, path) == 0);
}

void wait_for_words(const struct self *self, const char *word, int ranks)
{
    const int64_t end_ns = dpb_clock_now_ns() + TEST_TIMEOUT_NS;
    char path[4096];
    for (int r = 0; r < ranks; r++) {
        word_path(path, sizeof(path), word, r);
        while (access(path, F_OK) != 0) {
            RANK_TRUE(self, dpb_clock_now_ns() < end_ns);
            dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 10000000);
        }
    }
}

/* ---- values ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    return (x ^ x >> 33) * 0xc4ceb9fe1a85ec53 >> 17;
}

/* Even, and so small that sums over 9 ranks, also halved, are exact in every type. */
static int value_of(int rank, int64_t i)
{
    return 2 * ((int)(mix((uint64_t)i * 64 + (uint64_t)rank) % 15) - 7);
}

static void put(void *buffer, enum dpb_dtype dtype, int64_t i, int value)
{
    switch (dtype) {
    case DPB_F32:
        ((float *)buffer)[i] = (float)value;
        break;
    case DPB_F64:
        ((double *)buffer)[i] = value;
        break;
    case DPB_I32:
        ((int32_t *)buffer)[i] = value;
        break;
    case DPB_I64:
        ((int64_t *)buffer)[i] = value;
        break;
    case DPB_U8:
        ((uint8_t *)buffer)[i] = (uint8_t)value;
        break;
    default:
        ((uint16_t *)buffer)[i] = half_bits(dtype, value);
        break;
    }
}

static double get(const void *buffer, enum dpb_dtype dtype, int64_t i)
{
    switch (dtype) {
    case DPB_F32:
        return ((const float *)buffer)[i];
    case DPB_F64:
        return ((const double *)buffer)[i];
    case DPB_I32:
        return ((const int32_t *)buffer)[i];
    case DPB_I64:
        return (double)((const int64_t *)buffer)[i];
    case DPB_U8:
        return (int8_t)((const uint8_t *)buffer)[i];
    default:
        return half_value(dtype, ((const uint16_t *)buffer)[i]);
    }
}

/* What element i must be afterwards; false where it may be anything. */
static bool expected(const struct self *self, const struct dpb_coll *coll, int64_t i, double *value)
{
    int64_t each = coll->count / self->size + (coll->count % self->size != 0);
    int owner = (int)(i / each);
    int64_t part = coll->count / self->size;
    double sum = 0;
    for (int r = 0; r < self->size; r++)
        sum += (double)coll->scale * value_of(r, i);
    switch (coll->kind) {
    case DPB_COLL_ALL_GATHER:
        *value = value_of(owner, i);
        return true;
    case DPB_COLL_BROADCAST:
        *value = value_of(coll->root, i);
        return true;
    case DPB_COLL_ALL_TO_ALL:
        *value = value_of(owner, self->rank * part + i % part);
        return true;
    default:
        *value = sum;
        return coll->kind == DPB_COLL_ALL_REDUCE ||
               (coll->kind == DPB_COLL_REDUCE ? coll->root == self->rank : owner == self->rank);
    }
}

/* ---- sums ---- */

static void check_times(const struct self *self, const struct dpb_coll *coll, int algorithm,
                        const struct dpb_coll_times *times)
{
    const struct dpb_algorithm_setup setup = {
            .algorithm = algorithm == DPB_COMM_MPI_LIBRARY ? DPB_ALGORITHM_DIRECT
                                                           : (enum dpb_algorithm)algorithm,
            .ranks = self->size,
            .ranks_per_node = self->size % 2 == 0   ? self->size / 2
                              : self->size % 3 == 0 ? self->size / 3
                                                    : 1};
    RANK_TRUE(self, times->start_ns <= times->all_ready_ns && times->all_ready_ns <= times->end_ns);
    RANK_TRUE(self,
              times->wire_bytes == dpb_setup_wire_bytes(&setup, coll->kind, self->rank, coll->root,
                                                        coll->count, dpb_dtype_bytes(coll->dtype)));
}

static void check_one(struct self *self, struct dpb_coll coll, int algorithm)
{
    dpb_request *request;
    struct dpb_coll_times times;
    if (coll.kind == DPB_COLL_ALL_TO_ALL)
        coll.count -= coll.count % self->size;
    for (int64_t i = 0; i < coll.count + GUARD; i++)
        put(coll.buffer, coll.dtype, i, i < coll.count ? value_of(self->rank, i) : 96);
    dpb_status st = self->ops->start(self->comm, &coll, NULL, &request);
    if (st == DPB_ERR_UNSUPPORTED)
        return;
    RANK_TRUE(self, st == DPB_OK);
    RANK_TRUE(self, self->ops->wait(self->comm, request, NULL, &times) == DPB_OK);
    for (int64_t i = 0; i < coll.count + GUARD; i++) {
        double value = 96;
        if (i < coll.count && !expected(self, &coll, i, &value))
            continue;
        if (get(coll.buffer, coll.dtype, i) == value)
            continue;
        fprintf(stderr, "rank %d: %s of %lld %s, algorithm %d: element %lld is %g, not %g\n",
                self->rank, dpb_coll_text(coll.kind), (long long)coll.count,
                dpb_dtype_text(coll.dtype), algorithm, (long long)i,
                get(coll.buffer, coll.dtype, i), value);
        exit(1);
    }
    check_times(self, &coll, algorithm, &times);
}

static void check_kind(struct self *self, char *buffer, enum dpb_coll_kind kind, int algorithm,
                       int64_t count)
{
    for (int dtype = 0; dtype < DPB_DTYPE_COUNT; dtype++) {
        bool integer = dtype == DPB_I32 || dtype == DPB_I64;
        if ((dpb_coll_reduces(kind) && dtype == DPB_U8) ||
            (count == COUNT_MOST && dtype != DPB_F32))
            continue;
        struct dpb_coll coll = {.kind = kind,
                                .dtype = (enum dpb_dtype)dtype,
                                .buffer = buffer + 8 * (1 + dtype),
                                .count = count,
                                .root = (int)(count % self->size),
                                .scale = 1,
                                .tag = dtype};
        if (count < COUNT_MOST || !dpb_coll_reduces(kind))
            check_one(self, coll, algorithm);
        coll.scale = 0.5f;
        if (dpb_coll_reduces(kind) && !integer)
            check_one(self, coll, algorithm);
    }
}

/* Sums of bf16 and fp16 only: for numbers of ranks at which all of it takes too long. */
static void run_halves(struct self *self)
{
    void *buffer;
    for (int algorithm = DPB_ALGORITHM_RING; algorithm <= DPB_COMM_MPI_LIBRARY; algorithm++) {
        self_open(self, algorithm, DPB_COMM_MPI_THREAD, TEST_TIMEOUT_NS, NULL);
        RANK_TRUE(self, self->ops->buffer_alloc(self->comm, 8192, &buffer) == DPB_OK);
        for (int kind = 0; kind < DPB_COLL_COUNT; kind++)
            for (int i = 0; i < 2 && dpb_coll_reduces((enum dpb_coll_kind)kind); i++) {
                const struct dpb_coll coll = {.kind = (enum dpb_coll_kind)kind,
                                              .dtype = i ? DPB_F16 : DPB_BF16,
                                              .buffer = buffer,
                                              .count = 1003,
                                              .root = self->size - 1,
                                              .scale = 0.5f};
                check_one(self, coll, algorithm);
            }
        self->ops->close(self->comm);
    }
}

/* Nine ranks on two cores: the large size for all-reduce only. */
static void run_sums(struct self *self)
{
    const int64_t counts[] = {0, 1, 5, 1003, COUNT_MOST};
    void *buffer;
    for (int algorithm = DPB_ALGORITHM_RING; algorithm <= DPB_COMM_MPI_LIBRARY; algorithm++) {
        int progress = algorithm % 2 ? DPB_COMM_MPI_THREAD : DPB_COMM_MPI_NONE;
        self_open(self, algorithm, progress, TEST_TIMEOUT_NS, NULL);
        RANK_TRUE(self, self->ops->buffer_alloc(self->comm, 8 * (COUNT_MOST + 2 * GUARD),
                                                &buffer) == DPB_OK);
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
            for (int kind = 0; kind < DPB_COLL_COUNT; kind++)
                if (self->size <= 4 || counts[c] < COUNT_MOST || kind == DPB_COLL_ALL_REDUCE)
                    check_kind(self, buffer, (enum dpb_coll_kind)kind, algorithm, counts[c]);
        RANK_TRUE(self, self->ops->buffer_free(self->comm, buffer) == DPB_OK);
        self->ops->close(self->comm);
    }
}

/* ---- what is too large for one call: pieces, here of some ten elements ---- */

#define PIECE_BYTES 200

static void set_pieces(struct self *self, int64_t bytes)
{
    struct dpb_mpi_comm *comm = dpb_mpi_of(self->comm);
    comm->piece_bytes = bytes;
    comm->step_bytes = bytes < DPB_MPI_STEP_BYTES ? bytes : DPB_MPI_STEP_BYTES;
}

/* MPICH sums large shards in a way of its own, in place: pieces within and across shards. */
#define SHARD_COUNT       600001
#define SHARD_PIECE_BYTES 1200000

static void run_shards(struct self *self)
{
    void *buffer;
    self_open(self, DPB_COMM_MPI_LIBRARY, DPB_COMM_MPI_THREAD, TEST_TIMEOUT_NS, NULL);
    RANK_TRUE(self,
              self->ops->buffer_alloc(self->comm, 4 * (SHARD_COUNT + GUARD), &buffer) == DPB_OK);
    set_pieces(self, SHARD_PIECE_BYTES);
    check_one(self,
              (struct dpb_coll){.kind = DPB_COLL_REDUCE_SCATTER,
                                .dtype = DPB_F32,
                                .buffer = buffer,
                                .count = SHARD_COUNT,
                                .scale = 1},
              DPB_COMM_MPI_LIBRARY);
    self->ops->close(self->comm);
}

static void run_pieces(struct self *self)
{
    void *buffer;
    run_shards(self);
    for (int algorithm = DPB_ALGORITHM_RING; algorithm <= DPB_COMM_MPI_LIBRARY; algorithm++) {
        self_open(self, algorithm, DPB_COMM_MPI_THREAD, TEST_TIMEOUT_NS, NULL);
        RANK_TRUE(self, self->ops->buffer_alloc(self->comm, 8 * 2000, &buffer) == DPB_OK);
        set_pieces(self, PIECE_BYTES);
        for (int kind = 0; kind < DPB_COLL_COUNT; kind++)
            check_kind(self, buffer, (enum dpb_coll_kind)kind, algorithm, 1003);
        self->ops->close(self->comm);
    }
}

/* ---- 2^31 + 3 bytes, which an int does not count: a pattern, again and again ---- */

#define LARGE_BYTES      ((INT64_C(1) << 31) + 3)
#define PATTERN_ELEMENTS INT64_C(1000003)

static void set_pattern(const struct self *self, void *pattern, enum dpb_dtype dtype, bool is_sum,
                        int rank)
{
    for (int64_t i = 0; i < PATTERN_ELEMENTS; i++) {
        int value = is_sum ? 0 : value_of(rank, i);
        for (int r = 0; r < self->size && is_sum; r++)
            value += value_of(r, i);
        put(pattern, dtype, i, value);
    }
}

/* Elements of the pattern that follow element `at`, of at most `end` - `at`. */
static int64_t run_length(int64_t at, int64_t end)
{
    int64_t left = PATTERN_ELEMENTS - at % PATTERN_ELEMENTS;
    return left < end - at ? left : end - at;
}

static bool has_pattern(const char *buffer, const char *pattern, int64_t first, int64_t count,
                        int64_t bytes)
{
    for (int64_t i = first, n; i < first + count; i += n) {
        n = run_length(i, first + count);
        if (memcmp(buffer + i * bytes, pattern + i % PATTERN_ELEMENTS * bytes, (size_t)(n * bytes)))
            return false;
    }
    return true;
}

static void check_large(struct self *self, char *buffer, enum dpb_coll_kind kind,
                        enum dpb_dtype dtype)
{
    const int64_t bytes = (int64_t)dpb_dtype_bytes(dtype);
    const struct dpb_coll coll = {.kind = kind,
                                  .dtype = dtype,
                                  .buffer = buffer,
                                  .count = (LARGE_BYTES + bytes - 1) / bytes,
                                  .root = 1,
                                  .scale = 1};
    char *pattern = malloc((size_t)(PATTERN_ELEMENTS * bytes));
    RANK_TRUE(self, pattern);
    set_pattern(self, pattern, dtype, false, self->rank);
    for (int64_t i = 0; i < coll.count; i += PATTERN_ELEMENTS)
        memcpy(buffer + i * bytes, pattern, (size_t)(run_length(i, coll.count) * bytes));
    memset(buffer + coll.count * bytes, 96, GUARD);
    RANK_TRUE(self, dpb_comm_run(self->comm, &coll, NULL) == DPB_OK);
    for (int r = 0; r < self->size; r++) {
        int64_t first;
        int64_t count = dpb_coll_shard(coll.count, self->size, r, &first);
        set_pattern(self, pattern, dtype, dpb_coll_reduces(kind),
                    kind == DPB_COLL_BROADCAST ? coll.root : r);
        if (kind != DPB_COLL_REDUCE_SCATTER || r == self->rank)
            RANK_TRUE(self, has_pattern(buffer, pattern, first, count, bytes));
    }
    for (int i = 0; i < GUARD; i++)
        RANK_TRUE(self, buffer[coll.count * bytes + i] == 96);
    free(pattern);
}

static void run_large(struct self *self)
{
    static const struct {
        int algorithm;
        enum dpb_coll_kind kind;
        enum dpb_dtype dtype;
    } large[] = {
            {DPB_COMM_MPI_LIBRARY, DPB_COLL_ALL_REDUCE, DPB_BF16},
            {DPB_COMM_MPI_LIBRARY, DPB_COLL_ALL_REDUCE, DPB_F16},
            {DPB_COMM_MPI_LIBRARY, DPB_COLL_ALL_REDUCE, DPB_F32},
            {DPB_COMM_MPI_LIBRARY, DPB_COLL_REDUCE_SCATTER, DPB_BF16},
            {DPB_COMM_MPI_LIBRARY, DPB_COLL_REDUCE_SCATTER, DPB_F32},
            {DPB_COMM_MPI_LIBRARY, DPB_COLL_ALL_GATHER, DPB_U8},
            {DPB_COMM_MPI_LIBRARY, DPB_COLL_BROADCAST, DPB_U8},
            {DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, DPB_BF16},
            {DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, DPB_F32},
    };
    void *buffer;
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        self_open(self, large[i].algorithm, DPB_COMM_MPI_THREAD, TEST_TIMEOUT_NS, NULL);
        RANK_TRUE(self, self->ops->buffer_alloc(self->comm, (size_t)LARGE_BYTES + GUARD + 8,
                                                &buffer) == DPB_OK);
        check_large(self, buffer, large[i].kind, large[i].dtype);
        RANK_TRUE(self, self->ops->buffer_free(self->comm, buffer) == DPB_OK);
        self->ops->close(self->comm);
    }
}

/* ---- a collective that takes longer than the time-out, and moves all the time ---- */

#define SLOW_PIECES     24
#define SLOW_NS         INT64_C(150000000)
#define SLOW_TIMEOUT_NS INT64_C(3000000000)

static int slow_calls; /* so many of the calls below take their time */

static void take_time(void)
{
    if (slow_calls == 0)
        return;
    slow_calls--;
    dpb_clock_sleep_until_ns(dpb_clock_now_ns() + SLOW_NS);
}

/* MPI's profiling interface: the comm calls these. */
int MPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request)
{
    take_time();
    return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

int MPI_Isend(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (count == PIECE_BYTES)
        take_time();
    return PMPI_Isend(from, count, type, to, tag, comm, request);
}

/* With halving-doubling of three ranks the one that does not slow down has nothing to do for longer
 * than the time-out, while the others exchange halves. */
static void run_slow(struct self *self)
{
    const int algorithms[] = {DPB_COMM_MPI_LIBRARY, DPB_ALGORITHM_HALVING_DOUBLING};
    void *buffer;
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
        self_open(self, algorithms[a], DPB_COMM_MPI_THREAD, TEST_TIMEOUT_NS, NULL);
        RANK_TRUE(self, self->ops->buffer_alloc(self->comm, 8192, &buffer) == DPB_OK);
        set_pieces(self, PIECE_BYTES);
        dpb_mpi_of(self->comm)->timeout_ns = SLOW_TIMEOUT_NS;
        slow_calls = self->rank < 2 ? SLOW_PIECES : 0;
        struct dpb_coll coll = {.kind = DPB_COLL_ALL_REDUCE,
                                .dtype = DPB_F32,
                                .buffer = buffer,
                                .count = SLOW_PIECES * PIECE_BYTES / 4,
                                .scale = 1};
        struct dpb_coll_times times;
        RANK_TRUE(self, dpb_comm_run(self->comm, &coll, &times) == DPB_OK);
        dpb_mpi_of(self->comm)->timeout_ns = TEST_TIMEOUT_NS;
        RANK_TRUE(self, times.end_ns - times.start_ns > SLOW_TIMEOUT_NS);
        self->ops->close(self->comm);
    }
}

/* ---- overlap: what is complete before anybody waits, counted ---- */

#define STARTED 4
#define LOOKS   200

static int completed_before_wait(struct self *self, int progress)
{
    dpb_request *request[STARTED];
    struct dpb_comm_stats stats;
    void *buffer;
    int completed = 0;
    self_open(self, DPB_COMM_MPI_LIBRARY, progress, TEST_TIMEOUT_NS, NULL);
    RANK_TRUE(self, self->ops->buffer_alloc(self->comm, 4096 * STARTED, &buffer) == DPB_OK);
    for (int i = 0; i < STARTED; i++) {
        struct dpb_coll coll = {
                DPB_COLL_ALL_REDUCE, DPB_F32, (char *)buffer + 4096 * i, 1024, 0, 1, i};
        RANK_TRUE(self, self->ops->start(self->comm, &coll, NULL, &request[i]) == DPB_OK);
    }
    /* With a thread, as long as it takes; without, it would take for ever. */
    int64_t end_ns = dpb_clock_now_ns() + TEST_TIMEOUT_NS;
    for (int looks = 0; completed < STARTED; looks++) {
        if (progress == DPB_COMM_MPI_NONE ? looks == LOOKS : dpb_clock_now_ns() > end_ns)
            break;
        completed = 0;
        for (int i = 0; i < STARTED; i++)
            completed += self->ops->test(self->comm, request[i]) == DPB_OK;
        sched_yield();
    }
    self->ops->stats(self->comm, &stats);
    RANK_TRUE(self, stats.collectives == completed);
    for (int i = 0; i < STARTED; i++)
        RANK_TRUE(self, self->ops->wait(self->comm, request[i], NULL, NULL) == DPB_OK);
    self->ops->stats(self->comm, &stats);
    RANK_TRUE(self, stats.collectives == STARTED && stats.wire_bytes > 0);
    self->ops->close(self->comm);
    return completed;
}

static void run_overlap(struct self *self)
{
    RANK_TRUE(self, completed_before_wait(self, DPB_COMM_MPI_NONE) == 0);
    RANK_TRUE(self, completed_before_wait(self, DPB_COMM_MPI_THREAD) == STARTED);
}

/* ---- barrier, exchange, buffers; a barrier overtakes what the other rank has started ---- */

static void run_calls(struct self *self)
{
    int64_t mine[2] = {self->rank + 1, -self->rank};
    int64_t *all = calloc((size_t)self->size, sizeof(mine));
    void *first, *second;
    dpb_request *request;
    self_open(self, DPB_COMM_MPI_LIBRARY, DPB_COMM_MPI_THREAD, TEST_TIMEOUT_NS, NULL);
    RANK_TRUE(self, all && self->ops->exchange(self->comm, mine, sizeof(mine), all) == DPB_OK);
    for (int r = 0; r < self->size; r++)
        RANK_TRUE(self, all[2 * r] == r + 1 && all[2 * r + 1] == -r);
    RANK_TRUE(self, self->ops->buffer_alloc(self->comm, 100, &first) == DPB_OK);
    RANK_TRUE(self, self->ops->buffer_alloc(self->comm, 5000, &second) == DPB_OK);
    RANK_TRUE(self, (uintptr_t)first % 4096 == 0 && ((char *)second)[4999] == 0);
    struct dpb_coll coll = {DPB_COLL_ALL_REDUCE, DPB_I64, second, 3, 0, 1, 0};
    ((int64_t *)second)[2] = self->rank;
    if (self->rank == 0)
        RANK_TRUE(self, self->ops->start(self->comm, &coll, NULL, &request) == DPB_OK);
    RANK_TRUE(self, self->ops->barrier(self->comm) == DPB_OK);
    if (self->rank != 0)
        RANK_TRUE(self, self->ops->start(self->comm, &coll, NULL, &request) == DPB_OK);
    RANK_TRUE(self, self->ops->wait(self->comm, request, NULL, NULL) == DPB_OK);
    RANK_TRUE(self, ((int64_t *)second)[2] == self->size * (self->size - 1) / 2);
    RANK_TRUE(self, self->ops->buffer_free(self->comm, first) == DPB_ERR_USAGE);
    RANK_TRUE(self, self->ops->buffer_free(self->comm, second) == DPB_OK);
    RANK_TRUE(self, self->ops->buffer_free(self->comm, first) == DPB_OK);
    dpb_json *said = self->ops->describe(self->comm);
    RANK_TRUE(self,
              strcmp(dpb_json_as_string(dpb_json_get(said, "algorithm"), ""), "library") == 0);
    dpb_json_free(said);
    self->ops->close(self->comm);
    free(all);
}

/* ---- what is refused, and leaves the communicator as it was ---- */

static void refuse(struct self *self, struct dpb_coll coll, dpb_status with)
{
    dpb_request *request;
    RANK_TRUE(self, self->ops->start(self->comm, &coll, NULL, &request) == with);
}

static void run_usage(struct self *self)
{
    void *buffer;
    dpb_status st;
    struct self wrong = *self;
    wrong.size++;
    self_open(&wrong, DPB_COMM_MPI_LIBRARY, DPB_COMM_MPI_THREAD, TEST_TIMEOUT_NS, &st);
    RANK_TRUE(self, st == DPB_ERR_MISMATCH);
    self_open(self, DPB_ALGORITHM_DIRECT, DPB_COMM_MPI_THREAD, TEST_TIMEOUT_NS, &st);
    RANK_TRUE(self, st == DPB_ERR_USAGE);
    self_open(self, DPB_ALGORITHM_TREE, DPB_COMM_MPI_THREAD, TEST_TIMEOUT_NS, NULL);
    RANK_TRUE(self, self->ops->buffer_alloc(self->comm, 4096, &buffer) == DPB_OK);
    const struct dpb_coll good = {DPB_COLL_ALL_REDUCE, DPB_F32, buffer, 1024, 0, 1, -1};
    struct dpb_coll bad = good;
    bad.count = 1025;
    refuse(self, bad, DPB_ERR_USAGE);
    bad = good, bad.buffer = (char *)buffer + 2, bad.count = 4;
    refuse(self, bad, DPB_ERR_USAGE);
    bad = good, bad.scale = 0;
    refuse(self, bad, DPB_ERR_USAGE);
    bad = good, bad.dtype = DPB_I32, bad.scale = 0.5f;
    refuse(self, bad, DPB_ERR_USAGE);
    bad = good, bad.dtype = DPB_U8;
    refuse(self, bad, DPB_ERR_UNSUPPORTED);
    bad = good, bad.kind = DPB_COLL_BROADCAST, bad.root = self->size;
    refuse(self, bad, DPB_ERR_USAGE);
    bad = good, bad.kind = DPB_COLL_REDUCE_SCATTER;
    refuse(self, bad, DPB_ERR_UNSUPPORTED); /* a tree has none */
    RANK_TRUE(self, dpb_comm_run(self->comm, &good, NULL) == DPB_OK);
    self->ops->close(self->comm);
}

int main(int argc, char **argv)
{
    struct self self = {.ops = &dpb_comm_mpi_ops};
    struct dpb_mpi_start start;
    char why[256];
    if (argc != 2 || dpb_mpi_start_find(&start, why, sizeof(why)) < 0) {
        fprintf(stderr, "mpi_ranks: give the name of a case, under mpirun\n");
        return 2;
    }
    program = argv[0];
    self.rank = start.rank;
    self.size = start.size;
    if (self.ops->probe(why, sizeof(why)) < 0 || dpb_comm_ops_check(self.ops) < 0)
        return 2;
    const char *name = argv[1];
    if (strcmp(name, "sums") == 0)
        run_sums(&self);
    else if (strcmp(name, "halves") == 0)
        run_halves(&self);
    else if (strcmp(name, "pieces") == 0)
        run_pieces(&self);
    else if (strcmp(name, "large") == 0)
        run_large(&self);
    else if (strcmp(name, "slow") == 0)
        run_slow(&self);
    else if (strcmp(name, "overlap") == 0)
        run_overlap(&self);
    else if (strcmp(name, "calls") == 0 || strcmp(name, "child") == 0)
        run_calls(&self);
    else if (strcmp(name, "usage") == 0)
        run_usage(&self);
    else if (strcmp(name, "disagree") == 0)
        disagree_run(&self);
    else if (!failure_run(&self, name))
        return 2;
    leave_word(&self, "said", name);
    return 0;
}
