#include "idx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "dpb_log.h"

#define IDX_TYPE_U8  0x08
#define BUFFER_BYTES (256 * 1024)
/* Memory grows with what is really there: a damaged header may promise terabytes. */
#define FIRST_BYTES ((int64_t)16 << 20)

struct reader {
    const char *path;
    gzFile file;
    int64_t offset; /* in the uncompressed content */
};

static dpb_status damaged(const struct reader *reader)
{
    dpb_log_hint("get a fresh copy of \"%s\"", reader->path);
    return DPB_ERR_CORRUPT;
}

static dpb_status read_failed(const struct reader *reader)
{
    int saved_errno = errno, error;
    const char *text = gzerror(reader->file, &error);

    if (error == Z_ERRNO) {
        dpb_error("cannot read \"%s\" at byte %lld: %s", reader->path, (long long)reader->offset,
                  strerror(saved_errno));
        return DPB_ERR_IO;
    }
    dpb_error("cannot read \"%s\": the compressed data is damaged after byte %lld of its content "
              "(zlib: %s)",
              reader->path, (long long)reader->offset, text);
    return damaged(reader);
}

/* Up to `count` bytes, fewer only at the end of the file. */
static dpb_status read_some(struct reader *reader, uint8_t *to, int64_t count, int64_t *got)
{
    int64_t have = 0;

    while (have < count) {
        int64_t rest = count - have;
        unsigned ask = rest > BUFFER_BYTES ? BUFFER_BYTES : (unsigned)rest;
        int bytes = gzread(reader->file, to + have, ask);
        int error;

        if (bytes < 0)
            return read_failed(reader);
        have += bytes;
        reader->offset += bytes;
        if (bytes == 0) {
            /* The end, or a compressed file that was cut: gzread() says neither as a failure. */
            gzerror(reader->file, &error);
            if (error != Z_OK)
                return read_failed(reader);
            break;
        }
    }
    *got = have;
    return DPB_OK;
}

static dpb_status ends_early(const struct reader *reader, const char *what, int64_t total)
{
    dpb_error("cannot read \"%s\": it ends at byte %lld of its content, within %s; %lld bytes "
              "are expected",
              reader->path, (long long)reader->offset, what, (long long)total);
    return damaged(reader);
}

static dpb_status read_header(struct reader *reader, int rank, struct dpb_idx *idx, int64_t *count)
{
    uint8_t bytes[4 + 4 * DPB_IDX_RANK_MAX];
    int64_t want = dpb_idx_header_bytes(rank), got, elements = 1;

    DPB_TRY(read_some(reader, bytes, want, &got));
    if (got >= 4 && (bytes[0] || bytes[1] || bytes[2] != IDX_TYPE_U8 || bytes[3] != rank)) {
        dpb_error("\"%s\" is not an IDX file of unsigned bytes with %d dimensions: byte 0 on is "
                  "%02x%02x%02x%02x, expected 0000%02x%02x",
                  reader->path, rank, bytes[0], bytes[1], bytes[2], bytes[3], IDX_TYPE_U8, rank);
        return damaged(reader);
    }
    if (got < want)
        return ends_early(reader, "the header", want);
    idx->rank = rank;
    for (int i = 0; i < rank; i++) {
        const uint8_t *at = bytes + 4 + 4 * i;

        idx->dim[i] = (int64_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
        if (idx->dim[i] < 1 || idx->dim[i] > INT64_MAX / 2 / elements) {
            dpb_error("\"%s\": dimension %d is %lld (byte %d), which cannot be", reader->path, i,
                      (long long)idx->dim[i], 4 + 4 * i);
            return damaged(reader);
        }
        elements *= idx->dim[i];
    }
    *count = elements;
    return DPB_OK;
}

static dpb_status read_elements(struct reader *reader, int64_t count, struct dpb_idx *idx)
{
    int64_t total = reader->offset + count, have = 0, room = 0;

    while (have < count) {
        int64_t got;

        if (have == room) {
            int64_t larger = room == 0 ? FIRST_BYTES : 2 * room;
            uint8_t *data;

            if (larger > count)
                larger = count;
            data = realloc(idx->data, (size_t)larger);
            if (!data) {
                dpb_error("cannot read \"%s\": out of memory for %lld bytes", reader->path,
                          (long long)larger);
                return DPB_ERR_NO_MEMORY;
            }
            idx->data = data;
            room = larger;
        }
        DPB_TRY(read_some(reader, idx->data + have, room - have, &got));
        have += got;
        if (have < room)
            return ends_early(reader, "the elements", total);
    }
    return DPB_OK;
}

static dpb_status read_end(struct reader *reader)
{
    int64_t end = reader->offset, got;
    uint8_t byte;

    DPB_TRY(read_some(reader, &byte, 1, &got));
    if (got == 0)
        return DPB_OK;
    dpb_error("\"%s\": bytes follow the last element, which ends at byte %lld", reader->path,
              (long long)end);
    return damaged(reader);
}

dpb_status dpb_idx_read(const char *path, int rank, struct dpb_idx *idx)
{
    struct reader reader = {.path = path};
    struct dpb_idx read = {0};
    int64_t count;
    dpb_status st;

    reader.file = gzopen(path, "rbe");
    if (!reader.file) {
        st = errno == ENOENT ? DPB_ERR_NOT_FOUND : DPB_ERR_IO;
        dpb_error("cannot open \"%s\": %s", path, strerror(errno));
        return st;
    }
    gzbuffer(reader.file, BUFFER_BYTES);
    DPB_TRY_GOTO(st, read_header(&reader, rank, &read, &count), err_file);
    DPB_TRY_GOTO(st, read_elements(&reader, count, &read), err_file);
    DPB_TRY_GOTO(st, read_end(&reader), err_file);
    gzclose_r(reader.file);
    *idx = read;
    return DPB_OK;

err_file:
    gzclose_r(reader.file);
    dpb_idx_release(&read);
    return st;
}

void dpb_idx_release(struct dpb_idx *idx)
{
    free(idx->data);
    *idx = (struct dpb_idx){0};
}
