/* nccl_identity.c: which GPU this rank has. NCCL finds out late, and in fewer words, that two ranks
 * have the same one. */
#include "nccl_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dpb_nccl_uuid_text(const unsigned char uuid[16], char text[48])
{
    int at = snprintf(text, 48, "GPU-");
    for (int i = 0; i < 16; i++) {
        const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        at += snprintf(text + at, 48 - (size_t)at, "%s%02x", dash ? "-" : "", uuid[i]);
    }
}

/* Containers of a machine have it in common, so a GPU that two of them were given is found. */
static void read_machine(unsigned char machine[16])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    char text[40] = "";
    int digits = 0;
    if (!file)
        return;
    if (!fgets(text, sizeof(text), file))
        text[0] = '\0';
    fclose(file);
    for (const char *at = text; *at && digits < 32; at++) {
        const char digit[2] = {*at, '\0'};
        char *end;
        const unsigned long value = strtoul(digit, &end, 16);
        if (end == digit)
            continue;
        machine[digits / 2] |= (unsigned char)(digits % 2 ? value : value << 4);
        digits++;
    }
}

/* Virtual machines on different hosts may well name their GPUs alike. */
bool dpb_nccl_same_gpu(const struct dpb_nccl_identity *a, const struct dpb_nccl_identity *b)
{
    return memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0 &&
           memcmp(a->machine, b->machine, sizeof(a->machine)) == 0;
}

static dpb_status read_identity(struct dpb_nccl_comm *comm, const char *subject)
{
    _Static_assert(sizeof(comm->identity) == 112, "without padding");
    struct cudaDeviceProp properties;
    DPB_NCCL_CUDA(comm, subject, cudaGetDeviceProperties(&properties, comm->cuda_device));
    struct dpb_nccl_identity *mine = &comm->identity;
    memset(mine, 0, sizeof(*mine));
    memcpy(mine->uuid, &properties.uuid, sizeof(mine->uuid));
    mine->domain = properties.pciDomainID;
    mine->bus = properties.pciBusID;
    mine->slot = properties.pciDeviceID;
    /* cudart has no member for it; the driver puts the instance's profile into the name. */
    mine->is_mig = strstr(properties.name, " MIG ") != NULL;
    snprintf(mine->name, sizeof(mine->name), "%.*s", (int)sizeof(mine->name) - 1, properties.name);
    read_machine(mine->machine);
    return DPB_OK;
}

static dpb_status refuse_mig(struct dpb_nccl_comm *comm, const struct dpb_nccl_identity *all)
{
    for (int r = 0; r < comm->base.size; r++) {
        if (!all[r].is_mig)
            continue;
        return dpb_rendezvous_fail(comm->rendezvous, DPB_ERR_UNSUPPORTED,
                                   "use whole GPUs, or one rank",
                                   "rank %d: rank %d has a MIG instance (%s), and NCCL does not "
                                   "connect those",
                                   comm->base.rank, r, all[r].name);
    }
    return DPB_OK;
}

static dpb_status refuse_same(struct dpb_nccl_comm *comm, const struct dpb_nccl_identity *all)
{
    for (int b = 1; b < comm->base.size; b++) {
        for (int a = 0; a < b; a++) {
            char uuid[48];
            if (!dpb_nccl_same_gpu(&all[a], &all[b]))
                continue;
            dpb_nccl_uuid_text(all[a].uuid, uuid);
            return dpb_rendezvous_fail(
                    comm->rendezvous, DPB_ERR_USAGE,
                    "every rank needs a GPU of its own: use fewer ranks (--ranks), or look at "
                    "CUDA_VISIBLE_DEVICES of each rank",
                    "rank %d: ranks %d and %d have the same GPU: %s (%04x:%02x:%02x, %s)",
                    comm->base.rank, a, b, uuid, (unsigned)all[a].domain, (unsigned)all[a].bus,
                    (unsigned)all[a].slot, all[a].name);
        }
    }
    return DPB_OK;
}

dpb_status dpb_nccl_identity_check(struct dpb_nccl_comm *comm)
{
    struct dpb_nccl_identity *all = comm->gathered;
    _Static_assert(sizeof(*all) <= DPB_NCCL_GATHER_BYTES, "as many as are gathered");
    char subject[DPB_NCCL_SUBJECT];
    snprintf(subject, sizeof(subject), "rank %d: open", comm->base.rank);
    DPB_TRY(read_identity(comm, subject));
    DPB_TRY(dpb_rendezvous_exchange(comm->rendezvous, "GPU", &comm->identity,
                                    sizeof(comm->identity), all));
    if (comm->base.size == 1)
        return DPB_OK;
    DPB_TRY(refuse_mig(comm, all));
    return refuse_same(comm, all);
}
