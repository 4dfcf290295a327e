/* The coordinator of strategy `horovod`: Horovod's background thread, cycle by cycle. */
#include "horovod.h"

#include <string.h>

#include "dpb_log.h"

static dpb_status copy(const struct horovod *self, void *to, const void *from, int64_t bytes)
{
    const struct dpb_launcher *launcher = self->services.background;

    return dpb_device_get_ops(launcher->device)
            ->copy(launcher->device, to, from, (size_t)bytes, launcher->stream);
}

static enum dpb_dtype dtype_of(const struct horovod *self, int tensor)
{
    return (enum dpb_dtype)self->request[tensor].dtype;
}

static int64_t bytes_of(const struct horovod *self, int tensor)
{
    return self->model->params[tensor].numel * (int64_t)dpb_dtype_bytes(dtype_of(self, tensor));
}

/* Where a tensor is reduced when it is alone, and copied from and to when it is not. */
static char *place_of(const struct horovod *self, int tensor)
{
    return self->compressed
                   ? self->compressed + self->compressed_offset_bytes[tensor]
                   : self->services.unit_data(self->services.ctx, self->plan->unit_of[tensor]);
}

static void end_span(const struct horovod *self, int64_t begin, const char *name, int unit)
{
    self->services.span_end(self->services.ctx, begin, name, unit);
}

static int64_t begin_span(const struct horovod *self)
{
    return self->services.span_begin(self->services.ctx);
}

/* Traces show a response where its last tensor is. */
static int unit_of(const struct horovod *self, const struct horovod_response *response)
{
    return self->plan->unit_of[self->member[response->first + response->count - 1]];
}

/* ---- a response: copy in, reduce, copy out ---- */

static int64_t place_bytes(const struct horovod *self, int tensor)
{
    return fusion_place_bytes(bytes_of(self, tensor), self->options.batch_copies);
}

static dpb_status copy_members(const struct horovod *self, const struct horovod_response *response,
                               bool in)
{
    const int64_t begin = begin_span(self);
    char *at = self->fusion_buffer + response->offset_bytes;

    for (int m = response->first; m < response->first + response->count; m++) {
        char *place = place_of(self, self->member[m]);

        DPB_TRY(copy(self, in ? at : place, in ? place : at, bytes_of(self, self->member[m])));
        at += place_bytes(self, self->member[m]);
    }
    end_span(self, begin, in ? "MEMCPY_IN_FUSION_BUFFER" : "MEMCPY_OUT_FUSION_BUFFER",
             unit_of(self, response));
    return DPB_OK;
}

static dpb_status finish_oldest(struct horovod *self)
{
    const struct horovod_response *response = &self->response[self->finished_count];

    DPB_TRY(self->services.wait_on_host(self->services.ctx, response->handle));
    if (response->bytes > 0)
        DPB_TRY(copy_members(self, response, false));
    self->finished_count++;
    return DPB_OK;
}

dpb_status horovod_finish_all(struct horovod *self)
{
    while (self->finished_count < self->response_count)
        DPB_TRY(finish_oldest(self));
    return DPB_OK;
}

static dpb_status finish_complete(struct horovod *self)
{
    while (self->finished_count < self->response_count) {
        const dpb_status st = self->services.test(self->services.ctx,
                                                  self->response[self->finished_count].handle);

        if (st == DPB_PENDING)
            return DPB_OK;
        DPB_TRY(st);
        DPB_TRY(finish_oldest(self));
    }
    return DPB_OK;
}

static bool is_taken(const struct horovod *self, int64_t begin, int64_t end)
{
    for (int r = self->finished_count; r < self->response_count; r++) {
        const struct horovod_response *other = &self->response[r];

        if (other->offset_bytes < end && begin < other->offset_bytes + other->bytes)
            return true;
    }
    return false;
}

/* A place in the fusion buffer: behind that of the response before, or where that is too far back
 * at the beginning; when what is there has been finished. Every rank takes the same ones, however
 * far its reductions are. */
static dpb_status take_place(struct horovod *self, int64_t bytes, int64_t *offset_bytes)
{
    int64_t begin = self->fusion_end_bytes;

    if (begin + bytes > self->fusion_bytes)
        begin = 0;
    while (is_taken(self, begin, begin + bytes))
        DPB_TRY(finish_oldest(self));
    *offset_bytes = begin;
    self->fusion_end_bytes = begin + bytes;
    return DPB_OK;
}

static dpb_status start(struct horovod *self, struct horovod_response *response, int64_t elements)
{
    const int tensor = self->member[response->first];
    const struct dpb_sync_coll coll = {
            .kind = DPB_COLL_ALL_REDUCE,
            .dtype = dtype_of(self, tensor),
            .buffer = response->bytes > 0 ? self->fusion_buffer + response->offset_bytes
                                          : place_of(self, tensor),
            .count = elements,
            .scale = self->services.average * (float)self->request[tensor].prescale,
            .unit = unit_of(self, response),
            .name = "ALLREDUCE",
    };

    DPB_TRY(self->services.start(self->services.ctx, &coll, &response->handle));
    self->response_count++;
    self->reductions++;
    return DPB_OK;
}

/* Start the reduction of one group of the negotiation, which has answered at `answered`. */
static dpb_status execute(struct horovod *self, int group, int64_t answered)
{
    const struct horovod_negotiation *negotiation = &self->negotiation;
    const struct fusion *fusion = &negotiation->fusion;
    struct horovod_response *response = &self->response[self->response_count];
    int64_t bytes = 0, elements = 0;

    *response = (struct horovod_response){.first = self->member_count};
    for (int m = fusion->first[group]; m < fusion->first[group + 1]; m++) {
        const int tensor = negotiation->ready[fusion->member[m]].tensor;

        end_span(self, self->submitted_at[tensor], "NEGOTIATE_ALLREDUCE",
                 self->plan->unit_of[tensor]);
        DPB_TRY(self->services.await_gradient(self->services.ctx, tensor));
        self->member[self->member_count++] = tensor;
        response->count++;
        bytes += place_bytes(self, tensor);
        elements = self->model->params[tensor].numel;
    }
    if (response->count > 1) {
        elements = horovod_fused_elements(self, bytes);
        bytes = elements * (int64_t)dpb_dtype_bytes(dtype_of(self, self->member[response->first]));
        DPB_TRY(take_place(self, bytes, &response->offset_bytes));
        response->bytes = bytes;
        end_span(self, answered, "QUEUE", unit_of(self, response));
        DPB_TRY(copy_members(self, response, true));
    } else {
        end_span(self, answered, "QUEUE", unit_of(self, response));
    }
    DPB_TRY(start(self, response, elements));
    /* The hierarchical reduction goes through host memory, in this thread. */
    return self->options.hierarchical && horovod_is_two_level(self) ? horovod_finish_all(self)
                                                                    : DPB_OK;
}

/* ---- autotuning ---- */

static int64_t step_bytes(const struct horovod *self)
{
    int64_t bytes = 0;

    for (int t = 0; t < self->model->param_count; t++)
        bytes += bytes_of(self, t);
    return bytes;
}

static void begin_sample(struct horovod *self, int64_t now_ns)
{
    const struct tune_point point = tune_now(&self->tune);

    self->threshold_bytes = fusion_threshold_bytes(point.threshold_bytes, self->ranks_per_node);
    self->cycle_ns = point.cycle_ns;
    self->sample_start_ns = now_ns;
    self->sample_steps = 0;
    self->is_sampling = true;
}

/* Once per step, in its first cycle: at the end of a sample every rank learns rank 0's score, and
 * goes on to the same point. */
static dpb_status tune_step(struct horovod *self, int64_t now_ns)
{
    if (!self->options.autotune || self->tune.is_ended || self->step_is_counted)
        return DPB_OK;
    self->step_is_counted = true;
    if (!self->is_sampling) {
        begin_sample(self, now_ns);
    } else if (++self->sample_steps == self->options.tune_steps) {
        const int64_t elapsed_ns = now_ns - self->sample_start_ns;
        const double score = 1e9 * (double)(step_bytes(self) * self->sample_steps) /
                             (double)(elapsed_ns > 0 ? elapsed_ns : 1);

        DPB_TRY(self->services.exchange(self->services.ctx, &score, sizeof(score), self->score));
        tune_score(&self->tune, self->score[0]);
        begin_sample(self, now_ns);
    }
    return DPB_OK;
}

/* ---- a cycle ---- */

/* What became ready since the last cycle; how many. */
static int take_submitted(struct horovod *self)
{
    int count;

    self->services.lock(self->services.ctx);
    count = self->submitted_count;
    for (int i = 0; i < count; i++)
        self->queue[self->queue_count++] = self->request[self->submitted[i]];
    self->submitted_count = 0;
    self->services.unlock(self->services.ctx);
    return count;
}

dpb_status horovod_cycle(struct horovod *self, int64_t now_ns)
{
    const int64_t begin = begin_span(self);
    const int submitted = take_submitted(self);

    DPB_TRY(tune_step(self, now_ns));
    DPB_TRY(horovod_negotiate(&self->negotiation, self->queue, &self->queue_count,
                              self->threshold_bytes));
    /* Idle cycles would fill the trace. */
    if (submitted > 0 || self->negotiation.fusion.count > 0)
        end_span(self, begin, "CYCLE_START", -1);
    const int64_t answered = begin_span(self);
    for (int group = 0; group < self->negotiation.fusion.count; group++)
        DPB_TRY(execute(self, group, answered));
    if (self->member_count < self->model->param_count)
        return finish_complete(self);
    self->services.lock(self->services.ctx);
    self->is_agreed = true;
    self->services.unlock(self->services.ctx);
    return DPB_OK;
}
