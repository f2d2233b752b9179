/* A program that is linked statically with libibverbs. */
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void) {
  int count = 0;
  struct ibv_device** devices = ibv_get_device_list(&count);
  printf("%d devices\n", count);
  if (devices != NULL) ibv_free_device_list(devices);
  return 0;
}
