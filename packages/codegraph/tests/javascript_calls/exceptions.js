//// calls in try, catch and finally
//> main -> attempt, recover, clean
function attempt() {}
function recover() {}
function clean() {}
try {
  attempt();
} catch (error) {
  recover(error);
} finally {
  clean();
}

//// an exception of an own class
//> main -> check; check -> Invalid.constructor
class Invalid extends Error {
  constructor(text) {
    super(text);
  }
}
function check() {
  throw new Invalid("no");
}
try {
  check();
} catch (error) {
  console.error(error);
}

//// a method of what was thrown
//> main -> check, Failure.show; check -> Failure.constructor
class Failure {
  constructor() {
    this.code = 1;
  }
  show() {}
}
function check() {
  throw new Failure();
}
try {
  check();
} catch (failure) {
  failure.show();
}

//// a function that is thrown
//> main -> thrown
function thrown() {}
try {
  throw thrown;
} catch (caught) {
  caught();
}

//// a function chosen while trying
//> main -> real, spare
function real() {}
function spare() {}
let use;
try {
  use = real;
} catch {
  use = spare;
}
use();
