/* test_exercises.c: the exercises and their grader: skeletons come from their sources and
 * fail, solutions pass, and a small class gets the marks it should have.  The class, its
 * mistakes and its mischief are invented by tests/exercises/students.py. */
#include <criterion/criterion.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Workers are limited in address space, of which a sanitizer takes terabytes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNLIMITED 1
#else
#define UNLIMITED 0
#endif

static char said[1 << 16];

static const char *build(void)
{
    return getenv("BUILD") ? getenv("BUILD") : "build";
}

/* Runs a command; what it prints is in `said` (of a long text the end).  Returns its exit
 * status. */
static int run(const char *format, ...)
{
    char command[2048], text[4096];
    size_t n = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command - 8, format, arguments);
    va_end(arguments);
    strcat(command, " 2>&1");
    FILE *f = popen(command, "r");
    cr_assert(f);
    for (size_t got; (got = fread(text, 1, sizeof text, f)) > 0; n += got) {
        if (n + got >= sizeof said) { /* forgets the older half */
            memmove(said, said + n / 2, n - n / 2);
            n -= n / 2;
        }
        memcpy(said + n, text, got);
    }
    said[n] = '\0';
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

Test(exercises, skeletons_are_what_their_sources_generate)
{
    if (run("python3 -c ''")) cr_skip("no python3");
    cr_expect(run("python3 -B common/grader/exercises.py check") == 0, "%s", said);
}

/* The cases that the judge saw and that failed, of a worker in build/exercises/KIND. */
static void judge(const char *kind, const char *name, const char *suite, unsigned *cases,
                  unsigned *failed)
{
    *cases = *failed = 0;
    int status = run("%s/judge %s/exercises/solution/%s.worker %s/exercises/%s/%s.worker "
                     "%s", build(), build(), name, build(), kind, name, suite);
    const char *done = strstr(said, "\ndone\t");
    cr_expect(status == 0 && done && sscanf(done, " done %u %u", cases, failed) == 2,
              "judge of %s %s: exit status %d: %s", kind, name, status, said);
}

Test(exercises, every_skeleton_fails_and_every_solution_passes, .timeout = 900)
{
    glob_t list;
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    cr_assert(glob("0*/exercises/solutions/*.c*", 0, NULL, &list) == 0);
    cr_expect(list.gl_pathc >= 10, "%zu exercises", list.gl_pathc);
    for (size_t i = 0; i < list.gl_pathc; i++) {
        char name[64];
        unsigned cases, failed;
        snprintf(name, sizeof name, "%s", strrchr(list.gl_pathv[i], '/') + 1);
        *strchr(name, '.') = '\0';
        judge("solution", name, "--quick", &cases, &failed);
        cr_expect(cases >= 10 && failed == 0, "the solution of %s: %u of %u cases fail",
                  name, failed, cases);
        judge("skeleton", name, "--quick", &cases, &failed);
        cr_expect(10 * failed >= cases, "the skeleton of %s fails %u of %u cases only",
                  name, failed, cases);
    }
    globfree(&list);
    unsigned cases, failed;
    judge("solution", "merge", "", &cases, &failed); /* what make exercise runs */
    cr_expect(cases > 300 && failed == 0, "the whole suite: %u of %u fail", failed, cases);
}

/* A table of right answers is of no use: the grader draws other numbers. */
Test(exercises, another_seed_gives_other_numbers)
{
    static char numbers[3][sizeof said];
    static const char *const seeds[] = {"0", "1", "1"};
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    for (int i = 0; i < 3; i++) {
        int status = run("%s/judge %s/exercises/solution/safe_row.worker "
                         "%s/exercises/skeleton/safe_row.worker --quick --seed %s | "
                         "grep softmax-random-3x2", build(), build(), build(), seeds[i]);
        cr_assert(status == 0, "%s", said);
        strcpy(numbers[i], said);
    }
    cr_expect(strcmp(numbers[0], numbers[1]), "seeds 0 and 1: %s", numbers[0]);
    cr_expect_str_eq(numbers[1], numbers[2], "seed 1, twice");
}

/* Runs the grader on place/class, `times` times, and asks students.py what is wrong. */
static void grade(const char *place, const char *exercises, int times)
{
    int status;
    for (int i = 1; i <= times; i++) {
        status = run("python3 -B common/grader/grade.py --submissions %s/class --out %s/out%d "
                     "--ex '%s' --build %s --cc 'cc -std=c11 -D_GNU_SOURCE -O1 -fopenmp' "
                     "--cxx 'c++ -x c++ -std=c++20 -D_GNU_SOURCE -O1 -fopenmp' "
                     "--link 'c++ -fopenmp'", place, place, i, exercises, build());
        cr_assert(status == 0, "%s", said);
        status = run("diff -r %s/out1 %s/out%d", place, place, i);
        cr_expect(status == 0, "the same class, graded again, differs:\n%s", said);
    }
    status = run("python3 -B tests/exercises/students.py expect %s/out1", place);
    cr_expect(status == 0, "%s", said);
    run("rm -rf %s", place);
}

static void grade_class(const char *exercises, const char *students, int times)
{
    char place[] = "/tmp/test_exercises.XXXXXX";
    cr_assert(mkdtemp(place));
    int status = run("python3 -B tests/exercises/students.py --exercises '%s' write "
                     "%s/class %s", exercises, place, students);
    cr_assert(status == 0, "%s", said);
    grade(place, exercises, times);
}

Test(exercises, a_class_gets_the_marks_it_should_have, .timeout = 900)
{
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    if (run("python3 -c ''")) cr_skip("no python3");
    grade_class("online_step",
                "knows_everything hands_in_skeletons ends_with_exit_0 prints_checks_passed includes_it_by_its_path crashes "
                "never_ends does_not_compile writes_to_the_harness forges_the_judges_lines "
                "executes_the_solution reads_the_solution tries_the_doors "
                "closes_its_connection starts_threads_without_end "
                "includes_a_file_of_the_system includes_when_compiled_again "
                "includes_a_classmate assembles_a_file_of_the_system "
                "embeds_a_file_of_the_system embeds_a_solution fakes_a_full_disk kills_itself "
                "stuffs_its_pipe stuffs_its_socket fills_the_shared_file", 1);
    cr_expect(access("build/written_by_a_student", F_OK), "a submission wrote a file");
    cr_expect(access("/tmp/written_by_a_student", F_OK), "a submission made a pipe");
}

/* Marks for nothing: what a skeleton gets depends on the numbers, which a comment changes. */
Test(exercises, mistakes_are_explained_and_a_comment_earns_nothing, .timeout = 900)
{
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    if (run("python3 -c ''")) cr_skip("no python3");
    grade_class("safe_row weighted_sum score_row",
                "inf_minus_inf input_overwritten sum_not_started memory_of_the_last_row "
                "skeletons_with_comment_1 skeletons_with_comment_2 skeletons_with_comment_3 "
                "skeletons_with_comment_4", 1);
}

/* The grader is killed, or its machine lacks something: attacks.py says what must hold. */
static void attack(const char *name)
{
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    if (run("python3 -c ''")) cr_skip("no python3");
    int status = run("python3 -B tests/exercises/attacks.py --build %s %s", build(), name);
    if (status == 77) cr_skip("%s", said);
    cr_expect(status == 0, "%s: %s", name, said);
}

Test(exercises, a_grader_that_is_killed_leaves_nothing, .timeout = 900) { attack("term"); }
Test(exercises, a_full_disk_is_no_mark, .timeout = 900) { attack("no_room"); }
Test(exercises, a_lack_of_processes_is_no_mark, .timeout = 900) { attack("no_process"); }
Test(exercises, a_lack_of_memory_is_no_mark, .timeout = 900) { attack("no_memory"); }
Test(exercises, a_lack_of_threads_is_no_mark, .timeout = 900) { attack("no_thread"); }
Test(exercises, a_wrong_place_for_results_is_refused, .timeout = 900) { attack("out"); }
Test(exercises, names_with_quotes_and_links_are_told, .timeout = 900) { attack("quote"); }

Test(exercises, files_handed_in_strangely_harm_nobody, .timeout = 900)
{
    char place[] = "/tmp/test_exercises.XXXXXX";
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    if (run("python3 -c ''")) cr_skip("no python3");
    cr_assert(mkdtemp(place));
    int status = run("python3 -B tests/exercises/students.py clumsy %s/class", place);
    cr_assert(status == 0, "%s", said);
    grade(place, "online_step", 1);
}

Test(exercises, the_same_submissions_get_the_same_files, .timeout = 900)
{
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    if (run("python3 -c ''")) cr_skip("no python3");
    grade_class("running_mean load_tile",
                "mean_overflows barrier_missing_after_load", 2);
    grade_class("online_step", "does_not_compile assembles_nonsense", 2);
}

/* Projects in CUDA: their kernels executed on the CPU, no marks without a GPU. */
Test(exercises, projects_in_cuda_are_judged_as_far_as_this_machine_can, .timeout = 600)
{
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    if (run("python3 -c ''")) cr_skip("no python3");
    int status = run("python3 -B tests/exercises/gpu_project_test.py --build %s", build());
    cr_expect(status == 0, "%s", said);
}

/* Last year's file and last year's function, for each exercise with several forms. */
Test(exercises, last_years_answer_fails, .timeout = 900)
{
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    if (run("python3 -c ''")) cr_skip("no python3");
    int status = run("python3 -B tests/exercises/forms_test.py --build %s", build());
    cr_expect(status == 0, "%s", said);
}

/* A program that takes the given code's place, before main() or under its names. */
Test(exercises, the_given_code_is_used, .timeout = 900)
{
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    if (run("python3 -c ''")) cr_skip("no python3");
    int status = run("python3 -B tests/exercises/form_attacks.py --build %s", build());
    cr_expect(status == 0, "%s", said);
}

/* What students get: no link leads nowhere, no verb of `make help` is missing. */
Test(exercises, a_handout_is_whole, .timeout = 900)
{
    if (run("python3 -c ''")) cr_skip("no python3");
    cr_expect(run("python3 -B tests/exercises/handout_test.py") == 0, "%s", said);
}

/* A course: made from a seed, done by six students, graded, put on the board. */
Test(exercises, a_course_runs_from_its_creation_to_its_board, .timeout = 900)
{
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    if (run("python3 -c ''")) cr_skip("no python3");
    int status = run("python3 -B tests/exercises/course_test.py --build %s", build());
    cr_expect(status == 0, "%s", said);
}

/* The known ways of looking fast: speed_attacks.py. */
Test(exercises, speed_cannot_be_cheated_cheaply, .timeout = 900)
{
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    if (run("python3 -c ''")) cr_skip("no python3");
    int status = run("python3 -B tests/exercises/speed_attacks.py --build %s", build());
    cr_expect(status == 0, "%s", said);
}

/* A project begins with a program that is right, and can be solved. */
Test(exercises, projects_are_right_before_and_after, .timeout = 900)
{
    static const char *const files[][2] = {
        {"03_online_softmax/exercises/projects/online_softmax.c", "safe_row"},
        {"03_online_softmax/exercises/projects/solutions/online_softmax.c", "safe_row"},
        {"04_monoid_tiled_cpu/exercises/projects/flash_attention.c", "merge"},
        {"04_monoid_tiled_cpu/exercises/projects/solutions/flash_attention.c", "merge"}};
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char place[] = "/tmp/test_exercises.XXXXXX";
        unsigned cases = 0, failed = 1;
        cr_assert(mkdtemp(place));
        int status = run("cc -std=c11 -D_GNU_SOURCE -O2 -fopenmp -ffp-contract=off -Icommon -c %s "
                         "-o %s/x.o && c++ -fopenmp %s/x.o %s/obj/common/grader/worker.o %s/obj/common/grader/worker_host.o -lm -o "
                         "%s/x && %s/judge %s/exercises/solution/%s.worker %s/x --quick --draw 16 "
                         "--seed 7", files[i][0], place, place, build(), build(), place, build(), build(),
                         files[i][1], place);
        const char *done = strstr(said, "\ndone\t");
        cr_expect(status == 0 && done && sscanf(done, " done %u %u", &cases, &failed) == 2 &&
                  cases > 60 && failed == 0, "%s: %u of %u cases fail: %s", files[i][0], failed,
                  cases, said);
        run("rm -rf %s", place);
    }
}

/* The mistakes and the mischief of test-long fit the solutions as they are now. */
Test(exercises, every_invented_student_can_be_written)
{
    char place[] = "/tmp/test_exercises.XXXXXX";
    if (run("python3 -c ''")) cr_skip("no python3");
    cr_assert(mkdtemp(place));
    int status = run("python3 -B tests/exercises/students.py write %s", place);
    cr_expect(status == 0, "%s", said);
    run("rm -rf %s", place);
}

Test(exercises, questions_of_all_lessons_find_what_they_change)
{
    if (run("python3 -c ''")) cr_skip("no python3");
    cr_expect(run("python3 -B tests/exercises/questions.py --static") == 0, "%s", said);
}

/* The questions at the end of the lessons: the change that each asks for is made, and its
 * commands are run.  .ci/run does all stages. */
Test(exercises, questions_of_the_first_three_lessons_work, .timeout = 900)
{
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    if (run("python3 -c ''")) cr_skip("no python3");
    int status = run("python3 -B tests/exercises/questions.py --build %s 1 2 3", build());
    cr_expect(status == 0, "%s", said);
}

/* Every student that students.py knows, all exercises: minutes. */
Test(exercises, the_whole_class_gets_the_marks_it_should_have_long, .timeout = 3600)
{
    if (!getenv("LONG")) cr_skip("make test-long runs it");
    if (UNLIMITED) cr_skip("a sanitizer does not fit into a worker's limits");
    grade_class("", "", 1);
}
