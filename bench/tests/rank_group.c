#include "rank_group.h"

#include "dpb_test.h"

static dpb_status seat_alloc(void *ctx, size_t bytes, void **buffer)
{
    struct rank_seat *seat = ctx;

    if (seat->buffer_count == RANK_GROUP_BUFFERS_MAX)
        return DPB_ERR_INTERNAL;
    *buffer = calloc(1, bytes);
    seat->buffer[seat->buffer_count] = *buffer;
    seat->bytes[seat->buffer_count++] = bytes;
    return *buffer ? DPB_OK : DPB_ERR_NO_MEMORY;
}

static dpb_status seat_start(void *ctx, enum dpb_coll_kind kind, enum dpb_dtype dtype, void *buffer,
                             int64_t count, const char *name, int *exchange)
{
    struct rank_seat *seat = ctx;
    int at = 0, number = 0;

    while (at < seat->buffer_count && seat->buffer[at] != buffer)
        at++;
    while (number < DPB_RANK_EXCHANGES_MAX && seat->exchange[number].under_way)
        number++;
    if (at == seat->buffer_count || number == DPB_RANK_EXCHANGES_MAX || !name ||
        (size_t)count * dpb_dtype_bytes(dtype) > seat->bytes[at] || count % seat->group->size != 0)
        return DPB_ERR_INTERNAL;
    seat->exchange[number] = (struct rank_exchange){
            .under_way = true, .kind = kind, .dtype = dtype, .buffer = at, .count = count};
    seat->under_way++;
    *exchange = number;
    return DPB_OK;
}

/* What this rank has afterwards, from the memory of all before. */
static dpb_status make_result(struct rank_seat *seat, const struct rank_exchange *exchange,
                              char *result)
{
    int size = seat->group->size, rank = seat->services.rank;
    size_t part = (size_t)(exchange->count / size) * dpb_dtype_bytes(exchange->dtype);

    for (int r = 0; r < size; r++) {
        const char *from = seat->group->seat[r].buffer[exchange->buffer];

        switch (exchange->kind) {
        case DPB_COLL_ALL_TO_ALL:
            memcpy(result + (size_t)r * part, from + (size_t)rank * part, part);
            break;
        case DPB_COLL_ALL_GATHER:
            memcpy(result + (size_t)r * part, from + (size_t)r * part, part);
            break;
        default:
            return DPB_ERR_INTERNAL;
        }
    }
    seat->sent_bytes += (size - 1) * (int64_t)part;
    return DPB_OK;
}

static dpb_status seat_wait(void *ctx, int number)
{
    struct rank_seat *seat = ctx;
    struct rank_exchange *exchange = &seat->exchange[number];
    size_t bytes = (size_t)exchange->count * dpb_dtype_bytes(exchange->dtype);
    char *result = malloc(bytes);
    dpb_status st = DPB_ERR_INTERNAL;

    pthread_barrier_wait(&seat->group->barrier);
    if (exchange->under_way && result)
        st = make_result(seat, exchange, result);
    pthread_barrier_wait(&seat->group->barrier);
    if (st == DPB_OK)
        memcpy(seat->buffer[exchange->buffer], result, bytes);
    free(result);
    exchange->under_way = false;
    seat->under_way--;
    return st;
}

void rank_group_open(struct rank_group *group, int size)
{
    assert_true(size <= RANK_GROUP_MAX);
    memset(group, 0, sizeof(*group));
    group->size = size;
    assert_int_equal(pthread_barrier_init(&group->barrier, NULL, (unsigned)size), 0);
    for (int r = 0; r < size; r++) {
        group->seat[r].group = group;
        group->seat[r].services = (struct dpb_rank_services){.ctx = &group->seat[r],
                                                             .rank = r,
                                                             .size = size,
                                                             .alloc = seat_alloc,
                                                             .start = seat_start,
                                                             .wait = seat_wait};
    }
}

void rank_group_close(struct rank_group *group)
{
    for (int r = 0; r < group->size; r++) {
        assert_int_equal(group->seat[r].under_way, 0);
        for (int i = 0; i < group->seat[r].buffer_count; i++)
            free(group->seat[r].buffer[i]);
    }
    pthread_barrier_destroy(&group->barrier);
}

struct work {
    dpb_status (*body)(void *ctx, int rank);
    void *ctx;
    int rank;
    dpb_status st;
};

static void *run(void *ctx)
{
    struct work *work = ctx;

    work->st = work->body(work->ctx, work->rank);
    return NULL;
}

dpb_status rank_group_run(struct rank_group *group, dpb_status (*body)(void *ctx, int rank),
                          void *ctx)
{
    struct work work[RANK_GROUP_MAX];
    pthread_t thread[RANK_GROUP_MAX];
    dpb_status st = DPB_OK;

    for (int r = 0; r < group->size; r++) {
        work[r] = (struct work){.body = body, .ctx = ctx, .rank = r};
        assert_int_equal(pthread_create(&thread[r], NULL, run, &work[r]), 0);
    }
    for (int r = 0; r < group->size; r++) {
        pthread_join(thread[r], NULL);
        if (work[r].st != DPB_OK)
            st = work[r].st;
    }
    return st;
}
