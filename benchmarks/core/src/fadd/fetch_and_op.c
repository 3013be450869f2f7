/* Fetch-and-add by MPI_Fetch_and_op: each rank exposes its objects, and adds to those of all ranks.
 *
 * Usage: fetch_and_op DRAWS OBJECTS SECONDS. Rank r reads the objects that it chooses from the file
 * DRAWS.r, as 32-bit numbers: object i is number i / ranks of rank i % ranks. Rank 0 prints the
 * operations per second of all ranks, and the largest share that a rank lost of its core. */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Operations that a rank keeps under way. */
#define WINDOW 64
/* Operations between two looks at the clock; a multiple of WINDOW. */
#define BURST 256

static double cpu(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count != 4) {
        fprintf(stderr, "usage: fetch_and_op DRAWS OBJECTS SECONDS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    char name[4096];
    snprintf(name, sizeof name, "%s.%d", words[1], rank);
    FILE *file = fopen(name, "rb");
    if (!file) {
        perror(name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    fseek(file, 0, SEEK_END);
    size_t draws = (size_t)ftell(file) / sizeof(uint32_t);
    rewind(file);
    uint32_t *objects = malloc(draws * sizeof *objects);
    if (!objects || draws < BURST || fread(objects, sizeof *objects, draws, file) != draws) {
        fprintf(stderr, "%s: cannot read the objects\n", name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    fclose(file);
    MPI_Aint bytes = (MPI_Aint)((strtoull(words[2], NULL, 10) / ranks + 1) * sizeof(uint64_t));
    double seconds = strtod(words[3], NULL);

    uint64_t *mine;
    MPI_Win window;
    MPI_Win_allocate(bytes, sizeof(uint64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &window);
    for (MPI_Aint at = 0; at < bytes / (MPI_Aint)sizeof(uint64_t); at++) mine[at] = 0;
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    MPI_Win_sync(window);
    MPI_Barrier(MPI_COMM_WORLD);

    uint64_t one = 1, found[WINDOW];
    uint64_t done = 0;
    double start = MPI_Wtime(), cpu_before = cpu(), spent = 0;
    while (spent < seconds) {
        const uint32_t *burst = objects + done % (draws - draws % BURST);
        for (int at = 0; at < BURST; at++) {
            MPI_Fetch_and_op(&one, &found[at % WINDOW], MPI_UINT64_T, (int)(burst[at] % ranks),
                             burst[at] / ranks, MPI_SUM, window);
            if (at % WINDOW == WINDOW - 1) MPI_Win_flush_all(window);
        }
        done += BURST;
        spent = MPI_Wtime() - start;
    }
    double mine_of[2] = {(double)done / spent, 1 - (cpu() - cpu_before) / spent}, all_of[2];
    MPI_Win_unlock_all(window);
    /* The others have ended, too: what they added is here. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Reduce(&mine_of[0], &all_of[0], 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine_of[1], &all_of[1], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);

    /* Every operation must have added one. */
    uint64_t sum = 0, sums = 0, all_done = 0;
    for (MPI_Aint at = 0; at < bytes / (MPI_Aint)sizeof(uint64_t); at++) sum += mine[at];
    MPI_Reduce(&sum, &sums, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&done, &all_done, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    int is_wrong = rank == 0 && sums != all_done;
    if (is_wrong) fprintf(stderr, "%llu additions were lost\n", (unsigned long long)(all_done - sums));
    if (rank == 0 && !is_wrong) printf("%.1f %.4f\n", all_of[0], all_of[1]);
    MPI_Win_free(&window);
    MPI_Finalize();
    return is_wrong;
}
