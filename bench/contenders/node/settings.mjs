// The contender's settings, as its Python module wrote them into the environment.

export const settings = JSON.parse(process.env.BENCH_SETTINGS);
