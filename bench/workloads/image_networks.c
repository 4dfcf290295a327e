#include "image_networks.h"

#include <pthread.h>
#include <stdlib.h>

#include "dpb_log.h"
#include "dpb_options.h"

struct dpb_image_list {
    int64_t image_size;
    struct dpb_image_list *next;
    struct dpb_layer_list list;
};

#define SIZE_ROW(default_size, text)                                                               \
    {                                                                                              \
        .name = "image-size", .type = DPB_OPT_INT,                                                 \
        .offset = offsetof(struct dpb_image_options, image_size), .default_text = default_size,    \
        .min = 32, .max = 1024, .category = "Training", .unit = "pixels", .help = text             \
    }

const struct dpb_option dpb_imagenet_rows[1] = {
        SIZE_ROW("224", "height and width of the images; smaller ones make faster steps with the "
                        "same gradients")};
const struct dpb_option dpb_cifar_rows[1] = {SIZE_ROW("32", "height and width of the images")};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What dpb_layer_list_check() refuses, for want of memory. */
static const struct dpb_layer_list no_list;

const struct dpb_layer_list *dpb_image_lists_get(struct dpb_image_lists *lists, const void *options)
{
    const struct dpb_image_options *given = options;
    int64_t size = given ? given->image_size : lists->default_size;
    struct dpb_image_list *found;

    pthread_mutex_lock(&lock);
    for (found = lists->made; found && found->image_size != size; found = found->next)
        continue;
    if (!found && (found = calloc(1, sizeof(*found)))) {
        found->image_size = size;
        lists->build(&found->list, size);
        found->next = lists->made;
        lists->made = found;
    }
    pthread_mutex_unlock(&lock);
    if (found)
        return &found->list;
    dpb_error("out of memory for a list of layers");
    return &no_list;
}
