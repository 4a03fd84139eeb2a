/* capi SCENARIO [SAVED_MODEL]: TensorFlow from C, without Python.
 *
 *   closed    fills a 64 MiB variable in a session, closes the session and never deletes it
 *   deleted   the same, and deletes it
 *   models    loads the saved model three times, closing and deleting its session each time
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorflow/c/c_api.h>

static TF_Status *status;

static void check(const char *what) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "capi: %s: %s\n", what, TF_Message(status));
  exit(99);
}

static TF_Tensor *tensor(TF_DataType type, const void *data, size_t bytes, int rank, int64_t length) {
  TF_Tensor *made = TF_AllocateTensor(type, rank == 0 ? NULL : &length, rank, bytes);
  memcpy(TF_TensorData(made), data, bytes);
  return made;
}

static TF_Output constant(TF_Graph *graph, const char *name, TF_Tensor *value) {
  TF_OperationDescription *op = TF_NewOperation(graph, "Const", name);
  TF_SetAttrTensor(op, "value", value, status);
  check(name);
  TF_SetAttrType(op, "dtype", TF_TensorType(value));
  TF_Output made = {TF_FinishOperation(op, status), 0};
  check(name);
  TF_DeleteTensor(value);
  return made;
}

/* Assigns 16 Mi floats to a variable. */
static TF_Operation *assignment(TF_Graph *graph) {
  const int32_t length = 16 << 20;
  const float one = 1;
  TF_Output dims = constant(graph, "dims", tensor(TF_INT32, &length, sizeof length, 1, 1));
  TF_Output value = constant(graph, "value", tensor(TF_FLOAT, &one, sizeof one, 0, 0));
  TF_OperationDescription *op = TF_NewOperation(graph, "Fill", "fill");
  TF_AddInput(op, dims);
  TF_AddInput(op, value);
  TF_Output fill = {TF_FinishOperation(op, status), 0};
  check("Fill");
  op = TF_NewOperation(graph, "VarHandleOp", "variable");
  const int64_t shape = length;
  TF_SetAttrType(op, "dtype", TF_FLOAT);
  TF_SetAttrShape(op, "shape", &shape, 1);
  TF_SetAttrString(op, "shared_name", "variable", strlen("variable"));
  TF_Output variable = {TF_FinishOperation(op, status), 0};
  check("VarHandleOp");
  op = TF_NewOperation(graph, "AssignVariableOp", "assign");
  TF_SetAttrType(op, "dtype", TF_FLOAT);
  TF_AddInput(op, variable);
  TF_AddInput(op, fill);
  TF_Operation *assign = TF_FinishOperation(op, status);
  check("AssignVariableOp");
  return assign;
}

static void close_session(TF_Session *session, int delete) {
  TF_CloseSession(session, status);
  check("TF_CloseSession");
  if (!delete) return;
  TF_DeleteSession(session, status);
  check("TF_DeleteSession");
}

static void train(int delete) {
  TF_Graph *graph = TF_NewGraph();
  const TF_Operation *assign = assignment(graph);
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Session *session = TF_NewSession(graph, options, status);
  check("TF_NewSession");
  TF_SessionRun(session, NULL, NULL, NULL, 0, NULL, NULL, 0, &assign, 1, NULL, status);
  check("TF_SessionRun");
  close_session(session, delete);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
}

static void load_model(const char *folder) {
  const char *tags[] = {"serve"};
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Session *session = TF_LoadSessionFromSavedModel(options, NULL, folder, tags, 1, graph, NULL, status);
  check("TF_LoadSessionFromSavedModel");
  close_session(session, 1);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
}

int main(int argc, char **argv) {
  const char *scenario = argc > 1 ? argv[1] : "closed";
  status = TF_NewStatus();
  if (strcmp(scenario, "models") == 0 && argc > 2) {
    for (int i = 0; i < 3; i++) load_model(argv[2]);
  } else {
    train(strcmp(scenario, "deleted") == 0);
  }
  TF_DeleteStatus(status);
  return 0;
}
