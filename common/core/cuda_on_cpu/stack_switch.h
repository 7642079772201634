/* stack_switch.h: leave one stack and go on with another, for fibre.cc.
 *
 *     context_make(&c, stack, size, entry)  the first switch to c calls entry() on `stack`
 *     context_switch(&from, &to)            saves in `from` where we are, goes on in `to`
 *
 * A switch saves the registers that a call preserves, exchanges the stack pointer and
 * loads the registers of the other: a few ns.  (The library's swapcontext() makes a system call as well.) */
#pragma once

#include "cuda_on_cpu/cuda_on_cpu.h"

typedef void *context; /* the stack pointer */

extern "C" void cuda_on_cpu_switch(context *from, context to) asm("cuda_on_cpu_switch");
#ifdef __x86_64__
static const int SAVED = 6; /* words: r15 r14 r13 r12 rbx rbp, then the return address */
static const int ABOVE = 1;
asm(".text\n.weak cuda_on_cpu_switch\n.p2align 4\n"
    "cuda_on_cpu_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
    "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n"
    "    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n");
#elif defined(__aarch64__)
static const int SAVED = 19; /* words: d8-d15 x19-x29, then the return address, x30 */
static const int ABOVE = 2;
asm(".text\n.weak cuda_on_cpu_switch\n.p2align 4\n"
    "cuda_on_cpu_switch:\n"
    "    sub sp, sp, #160\n"
    "    stp d8, d9, [sp]\n    stp d10, d11, [sp, #16]\n"
    "    stp d12, d13, [sp, #32]\n    stp d14, d15, [sp, #48]\n"
    "    stp x19, x20, [sp, #64]\n    stp x21, x22, [sp, #80]\n"
    "    stp x23, x24, [sp, #96]\n    stp x25, x26, [sp, #112]\n"
    "    stp x27, x28, [sp, #128]\n    stp x29, x30, [sp, #144]\n"
    "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
    "    ldp d8, d9, [sp]\n    ldp d10, d11, [sp, #16]\n"
    "    ldp d12, d13, [sp, #32]\n    ldp d14, d15, [sp, #48]\n"
    "    ldp x19, x20, [sp, #64]\n    ldp x21, x22, [sp, #80]\n"
    "    ldp x23, x24, [sp, #96]\n    ldp x25, x26, [sp, #112]\n"
    "    ldp x27, x28, [sp, #128]\n    ldp x29, x30, [sp, #144]\n"
    "    add sp, sp, #160\n    ret\n");
#else
#error "stack_switch.h has the registers of x86-64 and of 64-bit ARM"
#endif

static inline void context_make(context *c, char *stack, size_t size, void (*entry)(void))
{
    void **top = (void **)(stack + size);
    for (int i = 0; i < ABOVE; i++) *--top = NULL; /* aligned as after a call */
    *--top = (void *)entry;
    for (int i = 0; i < SAVED; i++) *--top = NULL;
    *c = top;
}

CUDA_ON_CPU_UNSEEN static inline void context_switch(context *from, context *to)
{
    cuda_on_cpu_switch(from, *to);
}
