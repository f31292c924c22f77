"""A small network trained by asynchronous SGD: one worker, parameters on a server.

Every process finds its task in TF_CONFIG. Nothing here is about Paracosm:

    paracosm profile job --framework tensorflow train_tensorflow.py --steps 100 --out job.profile
"""

import json
import os

import tensorflow.compat.v1 as tf

BATCH, PIXELS, CLASSES = 64, 784, 10


def main():
    tf.disable_eager_execution()
    config = json.loads(os.environ["TF_CONFIG"])
    cluster = tf.train.ClusterSpec(config["cluster"])
    job, task = config["task"]["type"], config["task"]["index"]
    server = tf.train.Server(cluster, job_name=job, task_index=task)
    if job == "ps":
        server.join()

    worker = f"/job:worker/task:{task}"
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        train = training_step()
    with tf.train.MonitoredTrainingSession(master=server.target, is_chief=task == 0) as session:
        for _ in range(1000):
            session.run(train)


def training_step():
    """Return the op that makes one step of SGD on random images."""
    images = tf.random.uniform([BATCH, PIXELS])
    labels = tf.random.uniform([BATCH], maxval=CLASSES, dtype=tf.int32)
    hidden = tf.nn.relu(dense(images, 512, "hidden1"))
    hidden = tf.nn.relu(dense(hidden, 256, "hidden2"))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=dense(hidden, CLASSES, "output")
    )
    optimizer = tf.train.GradientDescentOptimizer(0.01)
    return optimizer.minimize(tf.reduce_mean(losses), tf.train.get_or_create_global_step())


def dense(inputs, width, name):
    with tf.variable_scope(name):
        weights = tf.get_variable("weights", [inputs.shape[-1], width])
        return tf.matmul(inputs, weights) + tf.get_variable("biases", [width])


if __name__ == "__main__":
    main()
