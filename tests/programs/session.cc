// TensorFlow from C++, without the C API: a session that computes 64 MiB into a variable, closed and destroyed when an
// argument says so.
#include <cstdio>
#include <cstring>
#include <memory>

#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/node_def_builder.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session.h"

namespace tf = tensorflow;

static void Check(const tf::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "session: %s\n", status.ToString().c_str());
  std::exit(99);
}

static tf::NodeDef* Constant(tf::GraphDef* graph, const char* name, const tf::Tensor& value) {
  tf::NodeDef* node = graph->add_node();
  Check(tf::NodeDefBuilder(name, "Const").Attr("dtype", value.dtype()).Attr("value", value).Finalize(node));
  return node;
}

int main(int argc, char** argv) {
  tf::Tensor dims(tf::DT_INT32, tf::TensorShape({1}));
  dims.flat<tf::int32>()(0) = 16 << 20;
  tf::Tensor one(1.0f);
  tf::GraphDef graph;
  Constant(&graph, "dims", dims);
  Constant(&graph, "one", one);
  Check(tf::NodeDefBuilder("fill", "Fill")
            .Input("dims", 0, tf::DT_INT32)
            .Input("one", 0, tf::DT_FLOAT)
            .Finalize(graph.add_node()));
  Check(tf::NodeDefBuilder("variable", "VarHandleOp")
            .Attr("dtype", tf::DT_FLOAT)
            .Attr("shape", tf::TensorShape({16 << 20}))
            .Attr("shared_name", "variable")
            .Finalize(graph.add_node()));
  Check(tf::NodeDefBuilder("assign", "AssignVariableOp")
            .Input("variable", 0, tf::DT_RESOURCE)
            .Input("fill", 0, tf::DT_FLOAT)
            .Attr("dtype", tf::DT_FLOAT)
            .Finalize(graph.add_node()));
  tf::SessionOptions options;
  std::unique_ptr<tf::Session> session(tf::NewSession(options));
  Check(session->Create(graph));
  Check(session->Run({}, {}, {"assign"}, nullptr));
  if (argc > 1 && std::strcmp(argv[1], "destroyed") == 0) {
    Check(session->Close());
    session.reset();
  } else {
    session.release();  // Neither closed nor destroyed.
  }
  return 0;
}
