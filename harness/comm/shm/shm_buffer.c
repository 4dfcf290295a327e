/* shm_buffer.c: memory that this rank's peers read and write: a stack of buffers in the segment. */
#include "shm_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpb_log.h"
#include "shm_row_distance.h"

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void dpb_shm_populate(void *memory, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return;
#endif
    /* Adding 0 atomically: a write to the page, and none to what is in it. */
    for (size_t at = 0; at < bytes; at += page_bytes())
        atomic_fetch_add((_Atomic uint32_t *)((char *)memory + at), 0);
}

/* Take the memory of this rank's region now: an error here, instead of SIGBUS at first use. */
static dpb_status reserve(int fd, int64_t first, int64_t bytes)
{
    const int64_t piece = (int64_t)64 << 20; /* a signal undoes one piece only */
    for (int64_t at = 0; at < bytes;) {
        int64_t n = bytes - at < piece ? bytes - at : piece;
        if (fallocate(fd, 0, first + at, n) == 0)
            at += n;
        else if (errno == EOPNOTSUPP || errno == ENOSYS)
            return DPB_OK; /* touching takes it */
        else if (errno != EINTR)
            return DPB_ERR_NO_MEMORY;
    }
    return DPB_OK;
}

static void give_back(int fd, int64_t first, int64_t bytes)
{
    /* Only frees memory early; the segment's end frees it in any case. */
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, bytes) < 0)
        dpb_debug("cannot return shared memory early: %s", strerror(errno));
}

/* In the segment. What is between two regions is never touched, and takes no memory. */
static size_t row_bytes(const struct dpb_shm_comm *comm, const struct dpb_shm_buffer *buffer)
{
    return buffer->distance_bytes * (size_t)comm->base.size;
}

static int64_t own_offset(const struct dpb_shm_comm *comm, const struct dpb_shm_buffer *buffer)
{
    return buffer->file_offset + (int64_t)buffer->distance_bytes * comm->base.rank;
}

/* Map the row of regions and fill this rank's with zeros. */
static dpb_status map_row(struct dpb_shm_comm *comm, struct dpb_shm_buffer *buffer)
{
    int64_t total = (int64_t)row_bytes(comm, buffer);
    int64_t own = own_offset(comm, buffer);
    struct stat segment;
    void *row = MAP_FAILED;
    /* All ranks grow the file to the same size, so it does not matter who does. */
    if (fstat(comm->fd, &segment) < 0)
        goto err_system;
    if (segment.st_size < buffer->file_offset + total &&
        ftruncate(comm->fd, buffer->file_offset + total) < 0)
        goto err_system;
    if (reserve(comm->fd, own, (int64_t)buffer->region_bytes) != DPB_OK)
        goto err_system;
    row = mmap(NULL, (size_t)total, PROT_READ | PROT_WRITE, MAP_SHARED, comm->fd,
               buffer->file_offset);
    if (row == MAP_FAILED)
        goto err_reserved;
    buffer->row = row;
    memset(dpb_shm_region(buffer, comm->base.rank), 0, buffer->region_bytes);
    return DPB_OK;

err_reserved:
    give_back(comm->fd, own, (int64_t)buffer->region_bytes);
err_system:
    dpb_error("rank %d: cannot get a shared buffer of %zu bytes: %s", comm->base.rank,
              buffer->bytes, strerror(errno));
    dpb_log_hint("use fewer ranks or a smaller model, or give the container more memory");
    return DPB_ERR_NO_MEMORY;
}

static void unmap_row(struct dpb_shm_comm *comm, const struct dpb_shm_buffer *buffer)
{
    munmap(buffer->row, row_bytes(comm, buffer));
}

static void give_back_own(struct dpb_shm_comm *comm, const struct dpb_shm_buffer *buffer)
{
    give_back(comm->fd, own_offset(comm, buffer), (int64_t)buffer->region_bytes);
}

dpb_status dpb_shm_buffer_alloc(dpb_comm *comm, size_t bytes, void **memory)
{
    struct dpb_shm_comm *shm = dpb_shm_of(comm);
    size_t page = page_bytes();
    if (bytes == 0 || bytes > ((size_t)1 << 62) / DPB_COMM_RANKS_MAX) {
        dpb_error("rank %d: a shared buffer of %zu bytes is not possible", shm->base.rank, bytes);
        return DPB_ERR_USAGE;
    }
    if (shm->buffer_count == DPB_SHM_BUFFERS) {
        dpb_error("rank %d: %d shared buffers are in use, no more are possible", shm->base.rank,
                  DPB_SHM_BUFFERS);
        dpb_log_hint("put several arrays into one buffer");
        return DPB_ERR_USAGE;
    }
    int64_t wanted = (int64_t)bytes;
    DPB_TRY(dpb_shm_call_all(shm, DPB_SHM_CALL_BUFFER_ALLOC, &wanted, sizeof(wanted)));
    for (int r = 0; r < shm->base.size; r++) {
        int64_t other;
        memcpy(&other, dpb_shm_call_data(shm, r), sizeof(other));
        if (other != wanted)
            return dpb_shm_fail(shm, DPB_ERR_MISMATCH, NULL,
                                "rank %d: buffer_alloc: ranks disagree: rank %d: %" PRId64
                                " bytes; rank %d: %" PRId64 " bytes",
                                shm->base.rank, shm->base.rank, wanted, r, other);
    }

    const size_t region_bytes = (bytes + page - 1) / page * page;
    struct dpb_shm_buffer buffer = {
            .distance_bytes = dpb_shm_row_distance(region_bytes, page, shm->base.size),
            .region_bytes = region_bytes,
            .bytes = bytes,
            .file_offset = shm->file_end,
    };
    int32_t mine = map_row(shm, &buffer);
    dpb_status st = dpb_shm_call_all(shm, DPB_SHM_CALL_BUFFER_ALLOC, &mine, sizeof(mine));
    int failed_rank = -1;
    for (int r = 0; st == DPB_OK && r < shm->base.size; r++) {
        int32_t other;
        memcpy(&other, dpb_shm_call_data(shm, r), sizeof(other));
        if (other != DPB_OK) {
            st = (dpb_status)other;
            failed_rank = r;
        }
    }
    if (st != DPB_OK) {
        if (mine == DPB_OK && failed_rank >= 0)
            dpb_error("rank %d: no shared buffer of %zu bytes, because rank %d could not get it",
                      shm->base.rank, bytes, failed_rank);
        if (mine == DPB_OK) {
            unmap_row(shm, &buffer);
            give_back_own(shm, &buffer);
        }
        return st;
    }
    for (int r = 0; r < shm->base.size; r++)
        dpb_shm_populate(dpb_shm_region(&buffer, r), region_bytes);

    pthread_mutex_lock(&shm->start_lock);
    shm->buffer[shm->buffer_count++] = buffer;
    pthread_mutex_unlock(&shm->start_lock);
    shm->file_end += (int64_t)row_bytes(shm, &buffer);
    *memory = dpb_shm_region(&buffer, shm->base.rank);
    return DPB_OK;
}

/* Is a collective in this buffer started and not complete? */
static bool is_in_use(struct dpb_shm_comm *comm, int index)
{
    uint64_t completed = dpb_shared_word_count(&comm->completed);
    for (uint64_t number = completed + 1; number <= comm->newest; number++)
        if (comm->request[number % DPB_SHM_REQUESTS].buffer_index == index)
            return true;
    return false;
}

dpb_status dpb_shm_buffer_free(dpb_comm *comm, void *memory)
{
    struct dpb_shm_comm *shm = dpb_shm_of(comm);
    int index = shm->buffer_count - 1;
    const char *problem = NULL;
    pthread_mutex_lock(&shm->start_lock);
    if (index < 0 || memory != dpb_shm_region(&shm->buffer[index], shm->base.rank))
        problem = "it is not the newest one";
    else if (is_in_use(shm, index))
        problem = "a collective in it has not completed";
    pthread_mutex_unlock(&shm->start_lock);
    if (problem) {
        dpb_error("rank %d: cannot free a shared buffer: %s", shm->base.rank, problem);
        dpb_log_hint("wait for every collective, and free buffers in the reverse order of their "
                     "allocation");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(dpb_shm_call_all(shm, DPB_SHM_CALL_BUFFER_FREE, NULL, 0));

    pthread_mutex_lock(&shm->start_lock);
    struct dpb_shm_buffer buffer = shm->buffer[--shm->buffer_count];
    pthread_mutex_unlock(&shm->start_lock);
    shm->file_end = buffer.file_offset;
    unmap_row(shm, &buffer);
    give_back_own(shm, &buffer);
    return DPB_OK;
}

int dpb_shm_buffer_find(const struct dpb_shm_comm *comm, const void *memory, int64_t bytes)
{
    for (int i = 0; i < comm->buffer_count; i++) {
        const struct dpb_shm_buffer *buffer = &comm->buffer[i];
        const char *own = dpb_shm_region(buffer, comm->base.rank);
        const char *at = memory;
        if (at >= own && at <= own + buffer->bytes &&
            bytes <= (int64_t)(buffer->bytes - (size_t)(at - own)))
            return i;
    }
    return -1;
}

void dpb_shm_buffers_unmap(struct dpb_shm_comm *comm)
{
    for (; comm->buffer_count > 0; comm->buffer_count--)
        unmap_row(comm, &comm->buffer[comm->buffer_count - 1]);
}
