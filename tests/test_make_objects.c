/* test_make_objects.c: when make compiles a file, and when it does not. */
#include "make_place.h"

TestSuite(make_objects, .init = make_place, .fini = remove_place, .timeout = 900);

/* A copy of the makefiles and of a stage, to which a variant is added. */
Test(make_objects, a_new_file_in_a_room_needs_no_line_in_a_makefile)
{
    int status = shell("cp -r Makefile common 02_safe_softmax $PLACE && cd $PLACE &&"
                       " mkdir -p 02_safe_softmax/newroom/inner && touch 02_safe_softmax/fast/new.c"
                       " 02_safe_softmax/newroom/inner/new.cu common/npy/new.c &&"
                       " make -n BUILD=b CUDA=0 b/02_safe_softmax");
    cr_expect(status == 0 && strstr(printed, " b/obj/02_safe_softmax/fast/new.o") &&
              strstr(printed, " b/obj/02_safe_softmax/newroom/inner/new.cpu.o") &&
              strstr(printed, " b/obj/common/npy/new.o"), "%d %s", status, complained);
    cr_expect(!strstr(printed, "exercises/"), "an exercise is part of the program");
}

Test(make_objects, an_object_depends_on_the_headers_that_it_includes)
{
    const char *object = "b/obj/common/npy/npy.o";
    int status = shell("cp -r Makefile common $PLACE && cd $PLACE && make BUILD=b CUDA=0 %s &&"
                       " make -q BUILD=b CUDA=0 %s", object, object);
    cr_assert(status == 0, "%d %s", status, complained);
    status = shell("cd $PLACE && touch -d 'next year' common/npy/npy.h &&"
                   " make -q BUILD=b CUDA=0 %s", object);
    cr_expect(status == 1, "a newer header: exit status %d", status);
    status = shell("cd $PLACE && touch -d '2001-01-01' common/npy/npy.h &&"
                   " make -q BUILD=b CUDA=0 %s CFLAGS=-O1", object);
    cr_expect(status == 1, "other flags: exit status %d", status);
}

/* `make cuda` after `make` compiles GPU code only, and links the programs again.  (nvcc is not
 * called, so any name will do.) */
Test(make_objects, cpu_objects_are_the_same_with_gpu_code)
{
    const char *kernel = "$PLACE/b/obj/01_naive/gpu/rows.cpu.o";
    const char *columns = "$PLACE/b/obj/common/measurement/csv.o";
    int status = shell(MAKE "%s %s", kernel, columns);
    cr_assert(status == 0, "%d %s", status, complained);
    const struct {
        const char *settings, *object;
        int remade;
    } cases[] = {
        {"CUDA=0", kernel, 0},  {"CUDA=1", kernel, 0},  {"CUDA=1 CXXFLAGS=-O1", kernel, 1},
        {"CUDA=0", columns, 0}, {"CUDA=1", columns, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        status = shell("make -q BUILD=$PLACE/b NO_INSTALL=1 NVCC=/no/nvcc %s %s",
                       cases[i].settings, cases[i].object);
        cr_expect(status == cases[i].remade, "%s %s: exit status %d %s", cases[i].settings,
                  cases[i].object, status, complained);
    }
}
