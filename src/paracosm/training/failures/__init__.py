"""Training in which nodes fail and messages are lost: what fails, and the lives of the job."""
