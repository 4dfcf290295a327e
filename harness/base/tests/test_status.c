#include "dpb_status.h"
#include "dpb_test.h"
#include "dpb_types.h"

static dpb_status fail_after(int *calls, dpb_status st)
{
    (*calls)++;
    return st;
}

static dpb_status use_try(int *calls, dpb_status first)
{
    DPB_TRY(fail_after(calls, first));
    DPB_TRY(fail_after(calls, DPB_OK));
    return DPB_OK;
}

static dpb_status use_goto(dpb_status first, int *cleaned)
{
    dpb_status st;
    int calls = 0;

    DPB_TRY_GOTO(st, fail_after(&calls, first), err);
    return DPB_OK;
err:
    *cleaned = 1;
    return st;
}

static void test_macros(void **state)
{
    dpb_status st = DPB_OK;
    int calls = 0, cleaned = 0;

    (void)state;
    assert_int_equal(use_try(&calls, DPB_OK), DPB_OK);
    assert_int_equal(calls, 2);
    calls = 0;
    assert_int_equal(use_try(&calls, DPB_ERR_IO), DPB_ERR_IO);
    assert_int_equal(calls, 1);
    /* positive is no failure */
    calls = 0;
    assert_int_equal(use_try(&calls, DPB_PENDING), DPB_OK);
    assert_int_equal(calls, 2);

    assert_int_equal(use_goto(DPB_OK, &cleaned), DPB_OK);
    assert_int_equal(cleaned, 0);
    assert_int_equal(use_goto(DPB_ERR_TIMEOUT, &cleaned), DPB_ERR_TIMEOUT);
    assert_int_equal(cleaned, 1);

    DPB_KEEP(st, DPB_OK);
    assert_int_equal(st, DPB_OK);
    DPB_KEEP(st, DPB_ERR_IO);
    DPB_KEEP(st, DPB_ERR_USAGE);
    assert_int_equal(st, DPB_ERR_IO);
}

static void test_texts_and_exit_codes(void **state)
{
    (void)state;
#define CHECK(name, number, text, exit_code)                                                       \
    assert_int_equal(name, number);                                                                \
    assert_string_equal(dpb_status_name(name), #name);                                             \
    assert_string_equal(dpb_status_text(name), text);                                              \
    assert_int_equal(dpb_status_exit_code(name), exit_code);                                       \
    if ((number) < 0)                                                                              \
        assert_int_not_equal(dpb_status_exit_code(name), 0);
    DPB_STATUS_MAP(CHECK)
#undef CHECK
    assert_string_equal(dpb_status_name((dpb_status)-999), "DPB_STATUS_UNKNOWN");
    assert_int_equal(dpb_status_exit_code((dpb_status)-999), 3);
    assert_int_equal(dpb_status_exit_code((dpb_status)999), 0);
}

static void test_dtypes(void **state)
{
    (void)state;
    assert_int_equal(dpb_dtype_bytes(DPB_F32), 4);
    assert_int_equal(dpb_dtype_bytes(DPB_BF16), 2);
    assert_int_equal(dpb_dtype_bytes(DPB_I64), 8);
    assert_string_equal(dpb_dtype_text(DPB_F16), "fp16");
    assert_string_equal(dpb_dtype_text(DPB_U8), "uint8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_macros),
            cmocka_unit_test(test_texts_and_exit_codes),
            cmocka_unit_test(test_dtypes),
    };

    return DPB_RUN_TESTS(tests);
}
