/* Published tables: what their texts mean, which rows are in scope, and fitting. */
#include "dpb_test.h"

#include <math.h>
#include <unistd.h>

#include "validate.h"

/* ---- texts ---- */

static struct validate_machine machine_of(const char *gpu, const char *interconnect)
{
    const struct validate_row row = {.gpu = gpu, .interconnect = interconnect, .system = ""};
    struct validate_machine machine;

    validate_match_machine(&row, &machine);
    return machine;
}

static void test_machines(void **state)
{
    static const struct {
        const char *gpu, *interconnect, *name;
        int nics;
        double gbit_per_s;
        enum validate_link link;
    } cases[] = {
            {"V100-SXM2-16GB", "NVLink DGX-1-like + 1x EDR IB 100 Gb/s", "dgx-1v", 1, 100,
             VALIDATE_RDMA},
            {"V100 (DGX-1)", "NVLink + 4x100Gb IB per machine", "dgx-1v", 4, 100, VALIDATE_RDMA},
            {"V100 32GB (DGX-2H)", "NVLink/NVSwitch + InfiniBand (multi-node)", "dgx-2h", 0, 0,
             VALIDATE_RDMA},
            {"V100 (p3.16xlarge)", "EC2 25 Gbit/s + NVLink", "aws-p3-16xlarge", 1, 25,
             VALIDATE_ETHERNET},
            {"NVIDIA H100-SXM5-80GB",
             "NVLINK Gen4 900 GB/s + NVSWITCH Gen3 | Storage: 2x ConnectX-7 IB NDR 400Gb/s, "
             "Compute: 8x ConnectX-7 IB NDR 400Gb/s, Man",
             "dgx-h100", 8, 400, VALIDATE_RDMA},
            {"NVIDIA A100-SXM4-80GB (400W)", "NVLINK 3.0, NVSWITCH 2.0 600GB/s | ", "dgx-a100", 0,
             0, VALIDATE_RDMA},
            {"NVIDIA A100-PCIe-80GB", "N/A | 1x ConnectX-5 IB EDR 100Gb/Sec", "a100-pcie", 1, 100,
             VALIDATE_RDMA},
            {"NVIDIA Tesla K80 (EC2 p2.8xlarge x N)", "EC2 Ethernet", "aws-p2-8xlarge", 0, 0,
             VALIDATE_ETHERNET},
            {"H100 NVL 94GB", "PCIe", "", 0, 0, VALIDATE_RDMA},
            {"H100-SXM5-80GB", "PCIe Gen5 | 8x 400Gb/s NDR", "dgx-h100", 8, 400, VALIDATE_RDMA},
            {"Cerebras WSE-3", "SwarmX", "", 0, 0, VALIDATE_RDMA},
            {"", "", "", 0, 0, VALIDATE_RDMA},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct validate_machine machine = machine_of(cases[i].gpu, cases[i].interconnect);

        if (strcmp(machine.name, cases[i].name) != 0 || machine.nics != cases[i].nics ||
            fabs(8e-9 * machine.nic_bytes_per_s - cases[i].gbit_per_s) > 1e-9 ||
            machine.link != cases[i].link)
            fail_msg("%s, %s: %s, %d cards of %g Gbit/s, link %d", cases[i].gpu,
                     cases[i].interconnect, machine.name, machine.nics,
                     8e-9 * machine.nic_bytes_per_s, machine.link);
    }
    assert_int_equal(machine_of("NVIDIA Pascal (4 per server)", "").per_node, 4);
    assert_int_equal(machine_of("K80 (3 nodes x 6)", "").per_node, 6);
}

static struct validate_system system_of(const char *text)
{
    const struct validate_row row = {.system = text, .precision = ""};
    struct validate_system system;

    validate_match_system(&row, &system);
    return system;
}

static void test_systems(void **state)
{
    static const char *const strategies[][2] = {
            {"PyTorch DDP/APEX", "ddp"},
            {"NGC MXNet 20.03 + Horovod", "horovod"},
            {"TensorFlow tf_cnn_benchmarks replicated+NCCL", "mirrored"},
            {"TensorFlow tf_cnn_benchmarks distributed_replicated,cross_replica_sync", "mwms"},
            {"PaddlePaddle 1.8.3 NCCL", "ddp"},
            {"DeepSpeed ZeRO3 on PyTorch", "fsdp"},
    };
    static const char *const excluded[] = {"TensorFlow tf_cnn_benchmarks parameter_server(cpu)",
                                           "BytePS",
                                           "MLPerf v1.1 NVIDIA HugeCTR (hybrid parallel)",
                                           "Horovod RDMA (allreduce on CPU, MPI)",
                                           "something new",
                                           ""};

    (void)state;
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        const struct validate_system system = system_of(strategies[i][0]);

        if (system.why || strcmp(system.strategy, strategies[i][1]) != 0)
            fail_msg("%s: %s", strategies[i][0], system.why ? system.why : system.strategy);
    }
    for (size_t i = 0; i < sizeof(excluded) / sizeof(excluded[0]); i++)
        if (!system_of(excluded[i]).why)
            fail_msg("%s is in scope", excluded[i]);
    assert_int_equal(system_of("PyTorch DDP 1.4.0a0 NCCL bucket_cap_mb=1").bucket_mib, 1);
    assert_true(system_of("NGC PyTorch 20.03 APEX").after_backward);
    assert_false(system_of("NGC PyTorch 20.03 APEX/DDP").after_backward);
    assert_true(system_of("TensorFlow 2.3: MultiWorkerMirroredStrategy").wants_mwms);
}

static void test_projects(void **state)
{
    static const char *const cases[][2] = {
            {"NVIDIA/DeepLearningExamples@729963dd47:PyTorch/BERT/README.md # x",
             "NVIDIA/DeepLearningExamples"},
            {"github.com/horovod/horovod/issues/326", "horovod/horovod"},
            {"mlcommons/training_results_v3.1:Dell/results/x", "mlcommons/training_results_v3.1"},
            {"arXiv 1706.02677 abstract (x)", "arXiv 1706.02677"},
            {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char project[96];

        validate_project(cases[i][0], project, sizeof(project));
        assert_string_equal(project, cases[i][1]);
    }
}

static void test_models(void **state)
{
    static const char *const cases[][2] = {
            {"ResNet-50 v1.5", "resnet-50"},
            {"RN50v1.5", "resnet-50"},
            {"resnext101-32x4d", "resnext101-32x4d"},
            {"Inception V3", "inception-v3"},
            {"se-resnext101-32x4d", "se-resnext101-32x4d"},
            {"BERT-large (MLPerf phase, seq 512)", "bert-large"},
            {"Transformer-XL large", "transformer-xl-large"},
            {"Transformer", "transformer-big"},
            {"efficientnet-widese-b0", ""},
    };
    struct validate_models models = {0};

    (void)state;
    assert_int_equal(validate_models_read(&models), DPB_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct validate_model *model = validate_models_find(&models, cases[i][0]);

        assert_non_null(model);
        assert_string_equal(model->name, cases[i][1]);
    }
    assert_null(validate_models_find(&models, "HuggingFace BERT (size not stated)"));
    for (size_t i = 0; i < models.csv.rows; i++) {
        struct validate_model *model = &models.model[i];

        if (!model->name[0] || model->workload[0])
            continue;
        assert_int_equal(validate_model_network(model), DPB_OK);
        assert_true(model->made->param_count > 1);
        assert_true(dpb_model_param_elements(model->made) > 1000000);
    }
    assert_true(dpb_model_param_elements(validate_models_find(&models, "AlexNet")->made) ==
                61100840);
    validate_models_release(&models);
}

/* ---- rows ---- */

#define HEADER                                                                                     \
    "source,system,model,precision,gpu,interconnect,gpus,per_gpu_batch,throughput_samples_s,"      \
    "scaling_efficiency_pct,notes\n"
#define RUN "a/b@1:c,PyTorch DDP,ResNet-50,fp32,V100 (DGX-1),NVLink + 4x100Gb IB,"

static void write_table(const char *text, char path[32])
{
    strcpy(path, "/tmp/dpb-validate-XXXXXX");
    const int file = mkstemp(path);

    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
}

static dpb_status read_table(const char *text, struct validate_table *table)
{
    char path[32];

    write_table(text, path);
    const dpb_status st = validate_table_read(path, table);
    table->csv.file = "test"; /* the path goes */
    unlink(path);
    return st;
}

static void test_series_and_scope(void **state)
{
    struct validate_table table;
    const char *text = HEADER RUN "1,32,300,,\n" /* 0 */
            RUN "8,32,2160,,\n"                  /* 1 */
            RUN "1,32,400,,\n"                   /* 2: begins a second series */
            RUN "8,32,2560,,\n"                  /* 3 */
            RUN "8,64,2560,,\n"                  /* 4: alone */
            RUN "16,32,,90,\n"                   /* 5: no throughput */
            RUN "32,32,10900,,\n"                /* 6: 113 % */
                                  "x,PyTorch DDP,Nobody-Net,fp32,V100,,8,1,1,,\n" /* 7 */
                                  "x,unknown,ResNet-50,fp32,V100,,8,1,1,,\n";     /* 8 */

    (void)state;
    assert_int_equal(read_table(text, &table), DPB_OK);
    assert_int_equal(table.count, 9);
    assert_null(table.row[1].exclusion);
    assert_ptr_equal(table.row[1].base, &table.row[0]);
    assert_true(fabs(table.row[1].published - 0.9) < 1e-12);
    assert_null(table.row[3].exclusion);
    assert_ptr_equal(table.row[3].base, &table.row[2]);
    assert_true(fabs(table.row[3].published - 0.8) < 1e-12);
    assert_non_null(strstr(table.row[0].exclusion, "predicted from it"));
    for (size_t i = 4; i < 9; i++)
        assert_non_null(table.row[i].exclusion);
    assert_non_null(strstr(table.row[4].exclusion, "nothing smaller"));
    assert_non_null(strstr(table.row[6].exclusion, "110"));
    assert_non_null(strstr(table.row[7].exclusion, "model"));
    assert_non_null(strstr(table.row[8].exclusion, "strategy"));
    validate_table_release(&table);
}

/* Numbers that are no run are neither predicted nor predicted from. */
static void test_numbers_that_are_no_run(void **state)
{
    static const char *const lines[] = {"0,32,300,,\n",   "-8,32,300,,\n",  "1.5,32,300,,\n",
                                        "1,32,0,,\n",     "1,32,1e300,,\n", "1,-32,300,,\n",
                                        "1,1e300,300,,\n"};

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct validate_table table;
        char text[1024];

        /* beside a run with the same batch */
        const char *batch = strchr(lines[i], ',');
        snprintf(text, sizeof(text), "%s%s%s%s8%.*s,1,,\n", HEADER, RUN, lines[i], RUN,
                 (int)strcspn(batch + 1, ",") + 1, batch);
        assert_int_equal(read_table(text, &table), DPB_OK);
        for (size_t r = 0; r < table.count; r++)
            if (!table.row[r].exclusion)
                fail_msg("row %zu of \"%s\" is in scope", r, lines[i]);
        validate_table_release(&table);
    }
}

static void test_bad_tables(void **state)
{
    static const char *const bad[] = {"", "source,system\nx,y\n", HEADER RUN "1,32,\"300,5\",,\n",
                                      HEADER "only,three,fields\n"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct validate_table table;

        if (read_table(bad[i], &table) != DPB_ERR_USAGE)
            fail_msg("table %zu is taken", i);
        validate_table_release(&table);
    }
}

static void test_published_table(void **state)
{
    struct validate_table table;
    size_t scope = 0;

    (void)state;
    assert_int_equal(validate_table_read(NULL, &table), DPB_OK);
    for (size_t i = 0; i < table.count; i++)
        scope += !table.row[i].exclusion;
    assert_true(scope > 400);
    validate_table_release(&table);
}

/* ---- fitting ---- */

/* Rows as simulation leaves them, published as the constants would have it. */
static void make_rows(struct validate_row *rows, size_t count, const char *project,
                      const struct validate_constants *truth)
{
    for (size_t i = 0; i < count; i += 2) {
        struct validate_row *base = &rows[i], *row = &rows[i + 1];

        *base = (struct validate_row){.gpus = 1, .per_node = 8, .accumulate = 1};
        base->exclusion = "a base";
        *row = *base;
        row->base = base;
        row->exclusion = NULL;
        row->gpus = 2 << (i / 2 % 5);
        row->normal_max = log2(row->gpus);
        row->is_reduced = i % 4 == 0;
        strcpy(row->project, project);
        for (int s = 0; s < VALIDATE_SHARES; s++) {
            base->step_ns[s] = base->micro_ns[s] = row->micro_ns[s] = 1e8 * (1 + (double)(i % 3));
            row->step_ns[s] = row->micro_ns[s] + (row->gpus > 8 ? 2e7 / validate_shares[s] : 1e6);
        }
        row->published = validate_efficiency(row, truth);
    }
}

static void test_fit_finds_constants(void **state)
{
    enum {
        EACH = 40
    };
    static struct validate_row rows[VALIDATE_FITTED * EACH];
    static const struct validate_constants truth = {.value = {[VALIDATE_RDMA_SHARE] = 0.5,
                                                              [VALIDATE_ETHERNET_SHARE] = 0.73,
                                                              [VALIDATE_STRAGGLER] = 0.01,
                                                              [VALIDATE_HOST_FULL] = 0.02,
                                                              [VALIDATE_HOST_REDUCED] = 0.08}};
    const struct validate_table table = {.row = rows, .count = VALIDATE_FITTED * EACH};
    struct validate_fit fit;

    (void)state;
    for (int p = 0; p < VALIDATE_FITTED; p++)
        make_rows(rows + p * EACH, EACH, validate_fitted[p], &truth);
    validate_fit_make(&table, &fit);
    for (size_t i = 0; i < table.count; i++) {
        if (rows[i].exclusion)
            continue;
        const double found = validate_efficiency(&rows[i], &fit.all);
        if (fabs(found - rows[i].published) > 0.01)
            fail_msg("row %zu: %g, not %g", i, found, rows[i].published);
    }
    /* What no row speaks of is as it was assumed. */
    assert_true(fit.all.value[VALIDATE_ETHERNET_SHARE] == 0.73);
    assert_true(fit.all.value[VALIDATE_HOST_STORED] == 0);
}

/* Rows of a project have no part in the constants that it is predicted with. */
static void test_held_out_is_held_out(void **state)
{
    enum {
        EACH = 20
    };
    static struct validate_row rows[2 * EACH];
    static const struct validate_constants truth = {
            .value = {[VALIDATE_RDMA_SHARE] = 0.5, [VALIDATE_HOST_FULL] = 0.02}};
    static const struct validate_constants other = {
            .value = {[VALIDATE_RDMA_SHARE] = 0.2, [VALIDATE_HOST_FULL] = 0.3}};
    const struct validate_table table = {.row = rows, .count = 2 * EACH};
    struct validate_fit fit, changed;

    (void)state;
    for (int p = 0; p < 2; p++) /* of a third there are none */
        make_rows(rows + p * EACH, EACH, validate_fitted[p], &truth);
    validate_fit_make(&table, &fit);
    make_rows(rows, EACH, validate_fitted[0], &other);
    validate_fit_make(&table, &changed);
    assert_memory_equal(validate_fit_held_out(&fit, validate_fitted[0]),
                        validate_fit_held_out(&changed, validate_fitted[0]),
                        sizeof(struct validate_constants));
    assert_memory_not_equal(&fit.without[1], &changed.without[1],
                            sizeof(struct validate_constants));
    assert_ptr_equal(validate_fit_held_out(&fit, "some/body"), &fit.all);
}

static void test_constants_file(void **state)
{
    struct validate_fit fit;
    struct dpb_str text = {0};

    (void)state;
    assert_int_equal(validate_fit_read(&fit), DPB_OK);
    validate_fit_write(&fit, &text);
    assert_non_null(strstr(text.text, "rdma-share,"));
    dpb_str_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_machines),
            cmocka_unit_test(test_systems),
            cmocka_unit_test(test_projects),
            cmocka_unit_test(test_models),
            cmocka_unit_test(test_series_and_scope),
            cmocka_unit_test(test_numbers_that_are_no_run),
            cmocka_unit_test(test_bad_tables),
            cmocka_unit_test(test_published_table),
            cmocka_unit_test(test_fit_finds_constants),
            cmocka_unit_test(test_held_out_is_held_out),
            cmocka_unit_test(test_constants_file),
    };
    return DPB_RUN_TESTS(tests);
}
