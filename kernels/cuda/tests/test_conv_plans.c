/* Does cuDNN itself have a plan for every convolution of our networks? Needs the library and no
 * GPU: plans are made for devices that are only described (tests/data). They say that shapes,
 * types, layouts and workspace are right; nothing of values or speed.
 *
 *   test_conv_plans <device>, a name in tests/data */
#include "dpb_test.h"

#include <time.h>

#include "conv_graph.h"
#include "dpb_log.h"

#define SHAPES_MAX 128
#define BATCH      64

/* Tables that bench/tests compares with the networks' own layer lists, tensor by tensor. */
static const char *const NETWORKS[] = {"resnet50", "resnet18",       "resnet101", "resnet152",
                                       "vgg16",    "cifar_resnet20", "mnist_cnn"};
#define NETWORK_COUNT (int)(sizeof(NETWORKS) / sizeof(NETWORKS[0]))

struct precision {
    const char *name;
    enum dpb_dtype dtype;
    bool tf32;
};
static const struct precision PRECISIONS[] = {{"fp32", DPB_F32, false},
                                              {"tf32", DPB_F32, true},
                                              {"bf16", DPB_BF16, false},
                                              {"fp16", DPB_F16, false}};
#define PRECISION_COUNT (int)(sizeof(PRECISIONS) / sizeof(PRECISIONS[0]))

static struct {
    struct dpb_cudnn cudnn;
    char properties[4096];
    const char *device;
    struct dpb_conv_shape shape[SHAPES_MAX];
    int count;
    int expected[NETWORK_COUNT]; /* convolutions of each network, repeated ones too */
} fixture;

static char logged[2048];

static void keep(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    if (level == DPB_LOG_ERROR) {
        snprintf(logged, sizeof(logged), "%s", line);
        printf("  %s\n", line);
    }
}

/* ---- the networks ---- */

/* Square images and kernels; "same" padding, or none where the output is smaller for it. */
static struct dpb_conv_shape shape_of(int64_t k, int64_t c, int64_t r, int64_t in, int64_t out)
{
    struct dpb_conv_shape shape = {.n = BATCH,
                                   .h = in,
                                   .w = in,
                                   .c = c,
                                   .k = k,
                                   .r = r,
                                   .s = r,
                                   .stride = 1,
                                   .pad = 0,
                                   .out_h = out,
                                   .out_w = out};
    if (out != in - r + 1) {
        shape.pad = (r - 1) / 2;
        shape.stride = (in + out - 1) / out;
    }
    assert_int_equal(dpb_conv_out(in, r, shape.stride, shape.pad), out);
    shape.c = dpb_conv_channels_padded(c);
    return shape;
}

static void add(const struct dpb_conv_shape *shape)
{
    for (int i = 0; i < fixture.count; i++) {
        if (memcmp(&fixture.shape[i], shape, sizeof(*shape)) == 0)
            return;
    }
    assert_true(fixture.count < SHAPES_MAX);
    fixture.shape[fixture.count++] = *shape;
}

/* Rows "0,conv1.weight,64x3x7x7,9408,37632,Conv2d,3x224x224,64x112x112,...". */
static int read_network(const char *name)
{
    char path[1024], line[512];
    int found = 0;
    snprintf(path, sizeof(path), "%s/%s.csv", DPB_TEST_NETWORKS, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        long long k, c, r, s, in_c, in, out;
        if (sscanf(line, "%*d,%*[^,],%lldx%lldx%lldx%lld,%*d,%*d,Conv2d,%lldx%lldx%*d,%*dx%lldx",
                   &k, &c, &r, &s, &in_c, &in, &out) != 7)
            continue;
        assert_int_equal(c, in_c);
        assert_int_equal(r, s);
        struct dpb_conv_shape shape = shape_of(k, c, r, in, out);
        add(&shape);
        found++;
    }
    fclose(file);
    return found;
}

static void test_tables(void **state)
{
    (void)state;
    /* torchvision's networks: 53 convolutions in ResNet-50, 1 + 3 (3 + 4 + 6 + 3) + 4 */
    static const int EXPECTED[] = {53, 20, 104, 155, 13, 19, 2};
    _Static_assert(sizeof(EXPECTED) / sizeof(EXPECTED[0]) == sizeof(NETWORKS) / sizeof(NETWORKS[0]),
                   "one for each");
    for (int i = 0; i < NETWORK_COUNT; i++)
        assert_int_equal(fixture.expected[i], EXPECTED[i]);
    printf("%d distinct convolutions of %d networks, batch %d\n", fixture.count, NETWORK_COUNT,
           BATCH);
}

/* ---- plans ---- */

static struct dpb_conv_graphs *open_graphs(void)
{
    struct dpb_conv_graphs *graphs = NULL;
    const struct dpb_conv_graphs_config config = {.cudnn = &fixture.cudnn,
                                                  .device_properties = fixture.properties};
    assert_int_equal(dpb_conv_graphs_open(&config, &graphs), DPB_OK);
    return graphs;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void test_every_convolution_has_a_plan(void **state)
{
    (void)state;
    struct dpb_conv_graphs *graphs = open_graphs();
    int missing = 0;
    for (int p = 0; p < PRECISION_COUNT; p++) {
        size_t largest = 0, sum = 0;
        int made = 0;
        double start = seconds();
        for (int i = 0; i < fixture.count; i++) {
            for (int pass = DPB_CONV_FWD; pass <= DPB_CONV_BWD_WEIGHTS; pass++) {
                struct dpb_conv_plan *plan = NULL;
                struct dpb_conv_shape shape = fixture.shape[i];
                shape.pass = pass;
                shape.dtype = PRECISIONS[p].dtype;
                shape.tf32 = PRECISIONS[p].tf32;
                if (dpb_conv_graphs_plan(graphs, &shape, &plan) != DPB_OK) {
                    missing++;
                    continue;
                }
                size_t bytes = dpb_conv_plan_workspace_bytes(plan);
                largest = bytes > largest ? bytes : largest;
                sum += bytes;
                made++;
            }
        }
        printf("%s %s: %d of %d plans, workspace at most %.1f MB, in all %.1f MB, %.1f s\n",
               fixture.device, PRECISIONS[p].name, made, 3 * fixture.count, largest * 1e-6,
               sum * 1e-6, seconds() - start);
    }
    dpb_conv_graphs_close(graphs);
    assert_int_equal(missing, 0);
}

/* What the first convolution needs with its channels as they are, and padded. */
static void test_padding_saves_workspace(void **state)
{
    (void)state;
    struct dpb_conv_graphs *graphs = open_graphs();
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        struct dpb_conv_plan *plan = NULL;
        struct dpb_conv_shape shape = shape_of(64, 3, 7, 224, 112);
        shape.pass = DPB_CONV_FWD;
        shape.dtype = DPB_BF16;
        shape.c = i ? shape.c : 3;
        assert_int_equal(dpb_conv_graphs_plan(graphs, &shape, &plan), DPB_OK);
        bytes[i] = dpb_conv_plan_workspace_bytes(plan);
        printf("%lld channels: %s\n", (long long)shape.c, dpb_conv_plan_text(plan));
    }
    assert_true(bytes[1] <= bytes[0]);
    dpb_conv_graphs_close(graphs);
}

static void test_wrong_shapes_are_refused(void **state)
{
    (void)state;
    struct dpb_conv_graphs *graphs = open_graphs();
    for (int pass = DPB_CONV_FWD; pass <= DPB_CONV_BWD_WEIGHTS; pass++) {
        for (int wrong = 0; wrong < 4; wrong++) {
            struct dpb_conv_shape shape = shape_of(64, 64, 3, 56, 56);
            struct dpb_conv_plan *plan = NULL;
            shape.pass = pass;
            shape.dtype = DPB_BF16;
            shape.out_h += wrong == 0;
            shape.out_w -= wrong == 1;
            shape.stride += wrong == 2;
            shape.r += wrong == 3 ? 2 : 0;
            logged[0] = '\0';
            assert_int_equal(dpb_conv_graphs_plan(graphs, &shape, &plan), DPB_ERR_USAGE);
            assert_non_null(strstr(logged, "CUDNN_STATUS_BAD_PARAM"));
            assert_non_null(strstr(logged, "spatial_dim"));
        }
    }
    dpb_conv_graphs_close(graphs);
}

static void test_wrong_properties_are_refused(void **state)
{
    (void)state;
    struct dpb_conv_graphs *graphs = NULL;
    const struct dpb_conv_graphs_config config = {.cudnn = &fixture.cudnn,
                                                  .device_properties = "{\"deviceVer\": 900}"};
    assert_true(dpb_conv_graphs_open(&config, &graphs) < 0);
    assert_non_null(strstr(logged, "cuDNN: device properties: CUDNN_STATUS_"));
}

/* Engines that fuse are compiled when they are made, by a driver that may be missing. Either way
 * there is a plan. */
static void test_fusion_or_not(void **state)
{
    (void)state;
    struct dpb_conv_graphs *graphs = open_graphs();
    for (int p = 0; p < PRECISION_COUNT; p++) {
        struct dpb_conv_plan *plan = NULL;
        struct dpb_conv_shape shape = shape_of(64, 64, 3, 224, 224);
        shape.pass = DPB_CONV_FWD;
        shape.dtype = PRECISIONS[p].dtype;
        shape.tf32 = PRECISIONS[p].tf32;
        shape.bias = shape.relu = true;
        assert_int_equal(dpb_conv_graphs_plan(graphs, &shape, &plan), DPB_OK);
        printf("%s with bias and ReLU: %s: %s\n", PRECISIONS[p].name,
               dpb_conv_plan_fused(plan) ? "fused" : "not fused", dpb_conv_plan_text(plan));
    }
    dpb_conv_graphs_close(graphs);
}

static void test_norm_engines(void **state)
{
    (void)state;
    struct dpb_conv_graphs *graphs = open_graphs();
    for (int pass = DPB_NORM_FWD; pass <= DPB_NORM_BWD; pass++) {
        for (int relu = 0; relu < 2; relu++) {
            char why[512] = "";
            int found = dpb_conv_graphs_norm_engines(graphs, pass, DPB_BF16, BATCH, 56, 56, 64,
                                                     relu, why, sizeof(why));
            printf("batch norm %s%s: %d engines%s%s\n", pass == DPB_NORM_FWD ? "fwd" : "bwd",
                   relu ? " with ReLU" : "", found, found ? "" : ": ", why);
            assert_true((found == 0) == (why[0] != '\0'));
            assert_null(strstr(why, "BAD_PARAM")); /* the graph itself is right */
        }
    }
    dpb_conv_graphs_close(graphs);
}

int main(int argc, char **argv)
{
    char why[512], path[1024];
    if (argc != 2)
        return 2;
    if (dpb_cudnn_open(&fixture.cudnn, why, sizeof(why)) != DPB_OK)
        dpb_test_skip_all(why);
    fixture.device = argv[1];
    snprintf(path, sizeof(path), "%s/%s.json", DPB_TEST_DATA, argv[1]);
    FILE *file = fopen(path, "r");
    if (!file)
        return 2;
    fixture.properties[fread(fixture.properties, 1, sizeof(fixture.properties) - 1, file)] = '\0';
    fclose(file);
    for (int i = 0; i < NETWORK_COUNT; i++)
        fixture.expected[i] = read_network(NETWORKS[i]);
    dpb_log_set_sink(keep, NULL);

    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_tables),
            cmocka_unit_test(test_every_convolution_has_a_plan),
            cmocka_unit_test(test_padding_saves_workspace),
            cmocka_unit_test(test_wrong_shapes_are_refused),
            cmocka_unit_test(test_wrong_properties_are_refused),
            cmocka_unit_test(test_fusion_or_not),
            cmocka_unit_test(test_norm_engines),
    };
    return DPB_RUN_TESTS(tests);
}
